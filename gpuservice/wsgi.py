# SPDX-License-Identifier: Apache-2.0
"""``gpuservice.wsgi:application`` for any WSGI server.

Configuration files are named by ``GPUSERVICE_CONFIG_FILES`` (``:`` between), or found in the
usual places.
"""

from __future__ import annotations

import os

from gpuservice import bootstrap
from gpuservice.cmd.heartbeat import BeatingApplication
from gpuservice.cmd.lifetime import configuration, refuse_sqlite, start_logging

_FILES = os.environ.get("GPUSERVICE_CONFIG_FILES")
_CONF = configuration([], "gpuservice-api", _FILES.split(":") if _FILES else None)
start_logging(_CONF, "gpuservice-api")
refuse_sqlite(_CONF, "gpuservice-api")
_CORE = bootstrap.core(_CONF, start=False)

application = BeatingApplication(_CORE, "gpuservice-api", bootstrap.application(_CORE))
