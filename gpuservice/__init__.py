# SPDX-License-Identifier: Apache-2.0
"""A service for GPUs as a shared resource: pools, queues, jobs and the reasons of every decision."""
