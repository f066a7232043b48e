# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings of the guides."""

import shutil

extensions = ["openstackdocstheme", "oslo_config.sphinxext", "oslo_policy.sphinxext"]
if shutil.which("dot"):  # tools/draw_states.py draws diagrams then
    extensions.append("sphinx.ext.graphviz")
    graphviz_output_format = "svg"
project = "gpuservice"
copyright = "gpuservice contributors"
html_theme = "openstackdocs"
openstackdocs_auto_name = False
openstackdocs_repo_name = "openstack/gpuservice"
exclude_patterns = ["_generated"]
root_doc = "index"
