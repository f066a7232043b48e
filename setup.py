# SPDX-License-Identifier: Apache-2.0
"""Hands the build to pbr, which reads setup.cfg."""

import setuptools

setuptools.setup(setup_requires=["pbr>=6.1.1"], pbr=True)
