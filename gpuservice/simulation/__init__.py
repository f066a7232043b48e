# SPDX-License-Identifier: Apache-2.0
"""A virtual clock around the planner: workloads and clusters read, replayed and reported."""
