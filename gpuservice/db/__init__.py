# SPDX-License-Identifier: Apache-2.0
"""The truth: tables, units of work and repositories on SQLite, PostgreSQL and MariaDB."""
