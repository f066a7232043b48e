# SPDX-License-Identifier: Apache-2.0
"""gpuservice-agent: the agent of one GPU node."""

from __future__ import annotations

import sys

from gpuservice.agent.program import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
