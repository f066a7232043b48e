# SPDX-License-Identifier: Apache-2.0
"""The release of this installation, as pbr derived it from the git tags when it was built."""

from __future__ import annotations

from importlib import metadata


def release() -> str:
    """Return the installed version, for example ``1.0.0`` or ``0.1.0.dev12``.

    An uninstalled source tree has no version; ``0`` is returned then.
    """
    try:
        return metadata.version("gpuservice")
    except metadata.PackageNotFoundError:
        return "0"
