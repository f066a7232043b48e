# SPDX-License-Identifier: Apache-2.0
"""What the service costs and how fast it is: ``python -m benchmarks`` (see README.md)."""
