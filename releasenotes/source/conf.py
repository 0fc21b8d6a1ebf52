# SPDX-License-Identifier: Apache-2.0
project = 'nova-dedup-migrate release notes'
copyright = 'nova-dedup-migrate contributors'

extensions = ['openstackdocstheme', 'reno.sphinxext']
root_doc = 'index'

html_theme = 'openstackdocs'

openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_use_storyboard = False
