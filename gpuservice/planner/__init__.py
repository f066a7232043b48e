# SPDX-License-Identifier: Apache-2.0
"""The planner: ``plan(snapshot, policy) -> Plan``, pure and deterministic."""
