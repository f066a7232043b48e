# SPDX-License-Identifier: Apache-2.0
"""Figures of the planner alone, on recorded workloads."""
