# SPDX-License-Identifier: Apache-2.0
"""Wake-ups between processes over oslo.messaging. Imports nothing of the service."""
