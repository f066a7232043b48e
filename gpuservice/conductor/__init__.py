# SPDX-License-Identifier: Apache-2.0
"""Reconcilers: inventory, pools, nodes, leases, attempts. Each step may be repeated."""
