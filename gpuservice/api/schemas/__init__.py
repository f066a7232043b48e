# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of bodies and queries, one file a noun."""
