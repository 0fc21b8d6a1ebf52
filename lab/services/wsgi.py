# SPDX-License-Identifier: Apache-2.0
"""The HTTP APIs: WSGI applications of OpenStack under uWSGI."""

import urllib.error
import urllib.request

from lab.cloud import PORTS


def start(cloud, name, service, module):
    """Start an API on the control host; return when it answers.

    :param name: of the process, e.g. nova-api
    :param service: of PORTS
    :param module: of the application, e.g. nova.wsgi.osapi_compute
    """
    cloud.start(cloud.control, name, [
        cloud.environment / 'bin' / 'uwsgi',
        '--virtualenv', cloud.python.parents[1],
        '--http-socket', '%s:%d' % (cloud.control.address, PORTS[service]),
        '--module', module, '--need-app', '--lazy-apps',
        '--master', '--die-on-term', '--processes', '1',
        '--threads', '4', '--enable-threads', '--buffer-size', '65535',
        # Images are uploaded in chunks of 1 MiB, which with their end is more
        # than the default, and nova-compute may need longer for one than
        # the 4 s that are the default.
        '--socket-timeout', '60', '--chunked-input-timeout', '60',
        '--chunked-input-limit', str(16 << 20), '--http-chunked-input',
        '--add-header', 'Connection: close',
        '--procname', name, '--disable-logging'],
        # uWSGI's threads are native. Nova 2025.2 would patch them otherwise.
        env={'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true'})
    cloud.wait(cloud.control, name, lambda: answers(cloud, service), 90)
    return 'answers at %s' % cloud.url(service)


def answers(cloud, service):
    """Whether an API answers; it may ask who we are."""
    url = 'http://%s:%d/' % (cloud.control.address, PORTS[service])
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
