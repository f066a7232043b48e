# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings of the REST reference."""

extensions = ["openstackdocstheme"]
project = "gpuservice REST reference"
copyright = "gpuservice contributors"
html_theme = "openstackdocs"
openstackdocs_auto_name = False
openstackdocs_repo_name = "openstack/gpuservice"
root_doc = "index"
