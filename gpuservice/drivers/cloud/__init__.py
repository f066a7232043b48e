# SPDX-License-Identifier: Apache-2.0
"""Drivers of the kind ``cloud``; their port is in ``gpuservice.domain.ports``."""
