# SPDX-License-Identifier: Apache-2.0
"""Version 1 of the API: one file a noun, and the proxy."""
