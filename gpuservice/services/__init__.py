# SPDX-License-Identifier: Apache-2.0
"""Use cases, one file a noun: they take a store and ports, never HTTP or SQL."""
