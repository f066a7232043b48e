# SPDX-License-Identifier: Apache-2.0
"""What goes into a task's working directory before it starts and out of it at its end."""
