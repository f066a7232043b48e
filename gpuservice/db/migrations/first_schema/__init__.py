# SPDX-License-Identifier: Apache-2.0
"""The tables of revision 0001, by topic.

This is history: a change of the schema is a revision of its own.
"""
