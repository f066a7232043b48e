# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "simulated"

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "state_dir",
        default="/var/lib/gpuservice/simulated",
        help="The directory that is the simulated cloud: hosts, servers, and what befalls them.",
    ),
    cfg.IntOpt("hosts", default=8, min=1, max=4000, help="How many hosts there are."),
    cfg.IntOpt("gpus_per_host", default=8, min=1, max=64, help="GPUs in each host."),
    cfg.StrOpt("gpu_type", default="a100-80gb", help="The type of the GPUs."),
    cfg.IntOpt("gpu_memory_mib", default=81920, min=1, help="Memory of a GPU, in MiB."),
    cfg.IntOpt("vcpus", default=64, min=1, help="CPUs of each host."),
    cfg.IntOpt("memory_mib", default=524288, min=1, help="Memory of each host, in MiB."),
    cfg.IntOpt("hosts_per_rack", default=4, min=1, help="Hosts that share a rack."),
    cfg.IntOpt("gpus_per_link_group", default=4, min=1, help="GPUs that share an NVLink group."),
    cfg.BoolOpt(
        "power_off", default=False, help="Whether nodes can be powered off, as with real servers."
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)
