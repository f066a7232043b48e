# SPDX-License-Identifier: Apache-2.0
"""Without Keystone: what ``OS_PROJECT_ID`` and its like are for where nobody authenticates.

keystoneauth's plugins ``none`` and ``http_basic`` take an endpoint (and a password), and fail
when the shell hands them the project that the environment or an option names. Here they leave
what is not theirs alone; the SDK sends it as identity headers (``sdk.service``).
"""

from __future__ import annotations

import functools
from typing import Any

from keystoneauth1 import loading

_PLUGINS = ("none", "http_basic")


def tolerate_identity() -> None:
    """Let the stand-alone plugins' loaders pass over options of other plugins. Idempotent."""
    for name in _PLUGINS:
        loader: Any = type(loading.get_plugin_loader(name))
        if not hasattr(loader.load_from_options, "tolerates"):
            loader.load_from_options = _tolerant(loader.load_from_options)


def _tolerant(load: Any) -> Any:
    @functools.wraps(load)
    def load_own(self: Any, **options: Any) -> Any:
        own = {option.dest for option in self.get_options()}
        return load(self, **{key: value for key, value in options.items() if key in own})

    load_own.tolerates = True  # type: ignore[attr-defined]
    return load_own
