# SPDX-License-Identifier: Apache-2.0
"""The ``openstack gpu`` commands: one file a noun, on a few generic commands."""
