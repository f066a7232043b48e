# SPDX-License-Identifier: Apache-2.0
"""Drivers of the kind ``engine``; their port is in ``gpuservice.domain.ports``."""
