# SPDX-License-Identifier: Apache-2.0
"""The pure core: states, rows, errors, ports and the decisions that need nothing but arguments."""
