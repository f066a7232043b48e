# SPDX-License-Identifier: Apache-2.0
"""What speaks to the service from outside: the SDK, and the commands built on it."""
