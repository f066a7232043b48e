# SPDX-License-Identifier: Apache-2.0
"""The programs: each parses, asks ``gpuservice.bootstrap`` for its parts, and runs them."""

import warnings

# A library that we use looks whether eventlet is there, which warns whoever starts a program;
# nothing here runs on it.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
