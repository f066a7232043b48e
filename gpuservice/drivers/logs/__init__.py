# SPDX-License-Identifier: Apache-2.0
"""Drivers of the kind ``logs``; their port is in ``gpuservice.domain.ports``."""
