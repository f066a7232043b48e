# SPDX-License-Identifier: Apache-2.0
"""The program on a GPU node: runs what the service says, and tells what became of it."""
