# SPDX-License-Identifier: Apache-2.0
"""Options: one file per group, each with ``GROUP``, ``OPTS`` and ``register_opts(conf)``."""
