# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings of the release notes."""

extensions = ["openstackdocstheme", "reno.sphinxext"]
project = "gpuservice release notes"
copyright = "gpuservice contributors"
html_theme = "openstackdocs"
openstackdocs_auto_name = False
openstackdocs_repo_name = "openstack/gpuservice"
root_doc = "index"
