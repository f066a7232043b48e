# SPDX-License-Identifier: Apache-2.0
"""The scheduler's loop with its I/O: collect a snapshot, plan, commit, under leadership."""
