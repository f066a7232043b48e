# SPDX-License-Identifier: Apache-2.0
"""HTTP and only HTTP: routes, schemas, guard, errors, views."""
