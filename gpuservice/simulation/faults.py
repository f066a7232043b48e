# SPDX-License-Identifier: Apache-2.0
"""What a simulation says when it cannot go on."""

from __future__ import annotations


class InputFault(ValueError):
    """A file or an option is wrong: the sentence says where, what it says and what is right."""


class PlanFault(RuntimeError):
    """The plan was not possible: it gave something twice, or never settled."""
