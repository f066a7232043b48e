# SPDX-License-Identifier: Apache-2.0
"""GPUs as a shared resource: pools, queues, jobs, and the reason of every decision."""
