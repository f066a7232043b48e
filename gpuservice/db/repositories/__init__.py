# SPDX-License-Identifier: Apache-2.0
"""One repository per noun: rows in, domain objects out."""
