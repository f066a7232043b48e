# SPDX-License-Identifier: Apache-2.0
"""The programs: each parses, asks ``gpuservice.bootstrap`` for its parts, and runs them."""
