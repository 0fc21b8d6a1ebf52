# SPDX-License-Identifier: Apache-2.0
from django.core import wsgi

application = wsgi.get_wsgi_application()
