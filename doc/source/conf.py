# SPDX-License-Identifier: Apache-2.0
project = 'nova-dedup-migrate'
copyright = 'nova-dedup-migrate contributors'

extensions = ['openstackdocstheme']
root_doc = 'index'
exclude_patterns = []

html_theme = 'openstackdocs'
html_show_sourcelink = False
pygments_style = 'native'

openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_use_storyboard = False
