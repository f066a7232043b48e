# SPDX-License-Identifier: Apache-2.0
"""Wake-ups between processes over oslo.messaging. Imports nothing of the service."""

from __future__ import annotations

from oslo_service import backend

# oslo.messaging brings oslo.service along, whose default is still eventlet; it must be told
# before it is first used.
if backend.get_backend_type() is None:
    backend.init_backend(backend.BackendType.THREADING)
