# SPDX-License-Identifier: Apache-2.0
"""Drivers: clouds, engines, quota sources, log and object stores; found by entry points."""
