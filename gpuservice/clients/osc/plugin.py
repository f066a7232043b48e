# SPDX-License-Identifier: Apache-2.0
"""How OpenStackClient finds the service."""

from __future__ import annotations

import argparse
from typing import Any

from osc_lib import utils

from gpuservice.clients import sdk
from gpuservice.clients.osc.standing_alone import tolerate_identity

DEFAULT_API_VERSION = "1"
API_VERSION_OPTION = "os_gpu_api_version"
API_NAME = "gpu"
API_VERSIONS = ("1",)


def make_client(instance: Any) -> sdk.Proxy:
    """The proxy of the shell's connection."""
    connection = instance.sdk_connection
    connection.add_service(sdk.GpuService())
    proxy: sdk.Proxy = connection.gpu
    return proxy


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The global option of the service; called before the shell makes its auth plugin."""
    tolerate_identity()
    parser.add_argument(
        "--os-gpu-api-version",
        metavar="<gpu-api-version>",
        default=utils.env("OS_GPU_API_VERSION"),
        help=f"GPU API version, default={DEFAULT_API_VERSION} (Env: OS_GPU_API_VERSION)",
    )
    return parser
