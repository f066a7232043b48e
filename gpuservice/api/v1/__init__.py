# SPDX-License-Identifier: Apache-2.0
"""Version 1: one file a noun; a verb is schema, guard, one service call, view."""
