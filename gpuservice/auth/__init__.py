# SPDX-License-Identifier: Apache-2.0
"""Who calls, and what they may do."""
