# SPDX-License-Identifier: Apache-2.0
"""Options whose stores lie below the test's own directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from gpuservice.conf import opts


@pytest.fixture
def conf(tmp_path: Path) -> cfg.ConfigOpts:
    """The service's options."""
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], project="gpuservice", default_config_files=[], default_config_dirs=[])
    conf.set_override("directory", str(tmp_path / "logs"), "logs")
    conf.set_override("directory", str(tmp_path / "objects"), "artifacts")
    conf.set_override("state_dir", str(tmp_path / "cloud"), "simulated")
    conf.set_override("hosts", 2, "simulated")
    return conf
