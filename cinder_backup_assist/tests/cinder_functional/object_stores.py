# SPDX-License-Identifier: Apache-2.0
"""Object stores for Cinder's own drivers: S3 of moto, a Swift, a GCS.

Each is a mixin for a BackupTestCase: it configures the driver, and has the
objects of the store by name.  None of them is stored on a disk.
"""

import base64
import hashlib
import http.server
import socketserver
import sys
import threading
import types
from unittest import mock
import urllib.parse

import boto3
import moto
from oslo_utils import importutils

BUCKET = 'backups'


class Store:
    """:cvar options: of cinder.conf"""

    options: dict = {}

    def setUp(self):
        self.start_store()
        importutils.import_class(self.driver)
        super().setUp()
        for name, value in self.options.items():
            self.override_config(name, value)

    def override_unit(self, prefix):
        """Set the options whose names Cinder's object stores share."""
        for name, value in (('object_size', self.object_size),
                            ('block_size', self.unit),
                            ('enable_progress_timer', False)):
            self.override_config('backup_%s_%s' % (prefix, name), value)

    def objects_of(self, backup):
        """Return the names of the objects of a backup."""
        return [name for name in self.names()
                if name.startswith(backup.service_metadata + '-')]


class S3(Store):
    driver = 'cinder.backup.drivers.s3.S3BackupDriver'
    options = {'backup_s3_endpoint_url': 'https://s3.amazonaws.com',
               'backup_s3_store_access_key': 'key',
               'backup_s3_store_secret_key': 'secret',
               'backup_s3_store_bucket': BUCKET,
               'backup_s3_retry_max_attempts': 1}

    def start_store(self):
        mocked = moto.mock_aws()
        mocked.start()
        self.addCleanup(mocked.stop)
        self.client = boto3.client('s3', region_name='us-east-1')

    def setUp(self):
        super().setUp()
        self.override_unit('s3')

    def names(self):
        answer = self.client.list_objects_v2(Bucket=BUCKET)
        return [one['Key'] for one in answer['Contents']]

    def get(self, name):
        return self.client.get_object(Bucket=BUCKET, Key=name)['Body'].read()

    def put(self, name, data):
        self.client.put_object(Bucket=BUCKET, Key=name, Body=data)

    def delete(self, name):
        self.client.delete_object(Bucket=BUCKET, Key=name)


class _SwiftRequest(http.server.BaseHTTPRequestHandler):
    """Swift's API, as far as backups need it, with its first auth."""

    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        if self.path == '/auth/v1.0':
            self.server.logins += 1
            self._answer(200, **{
                'X-Storage-Url': self.server.url + '/v1/account',
                'X-Auth-Token': self.server.token})
            return
        data = self.server.objects.get(self._name())
        if self.headers['X-Auth-Token'] != self.server.token:
            self._answer(401)
        elif data is None:
            self._answer(404)
        elif self._name() in self.server.cut:
            # The connection ends before what was announced has come.
            self.close_connection = True
            self._answer(200, data[:len(data) // 2],
                         **{'Content-Length': str(len(data))})
        else:
            self._answer(200, data)

    def do_HEAD(self):
        self._answer(204 if self._name() in self.server.objects else 404)

    def do_PUT(self):
        data = self.rfile.read(int(self.headers['Content-Length'] or 0))
        self.server.objects[self._name()] = data
        self._answer(201, Etag=hashlib.md5(data).hexdigest())

    def _name(self):
        return urllib.parse.unquote(
            self.path.removeprefix('/v1/account/'))

    def _answer(self, status, body=b'', **headers):
        self.send_response(status)
        headers.setdefault('Content-Length', str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Print nothing."""


class _SwiftServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Not of http.server, in which eventlet, once imported, has no threads.
    """

    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that has enough ends the connection."""


class Swift(Store):
    driver = 'cinder.backup.drivers.swift.SwiftBackupDriver'
    options = {'backup_swift_auth': 'single_user',
               'backup_swift_auth_version': '1',
               'backup_swift_user': 'user', 'backup_swift_key': 'key',
               'backup_swift_container': BUCKET,
               'backup_swift_retry_attempts': 0,
               'backup_swift_retry_backoff': 0}

    def start_store(self):
        self.server = _SwiftServer(('127.0.0.1', 0), _SwiftRequest)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.server.url = 'http://127.0.0.1:%d' % (
            self.server.server_address[1])
        self.server.objects, self.server.cut = {}, set()
        self.server.token, self.server.logins = 'first', 0
        threading.Thread(target=self.server.serve_forever, args=(0.01,),
                         daemon=True).start()

    def setUp(self):
        super().setUp()
        self.override_unit('swift')
        self.override_config('backup_swift_auth_url',
                             self.server.url + '/auth/v1.0')

    def names(self):
        return sorted(name.removeprefix(BUCKET + '/')
                      for name in self.server.objects)

    def get(self, name):
        return self.server.objects[BUCKET + '/' + name]

    def put(self, name, data):
        self.server.objects[BUCKET + '/' + name] = data

    def delete(self, name):
        del self.server.objects[BUCKET + '/' + name]


class _GoogleError(Exception):
    """What Google's client raises."""


class _Google:
    """Google's client: conn.objects().get(...).execute() and the like."""

    def __init__(self, kept):
        self._kept = kept
        self._name = ''
        self._result = None

    def _with(self, result, name=''):
        found = _Google(self._kept)
        found._result, found._name = result, name
        return found

    def objects(self):
        return self

    buckets = objects

    def list(self, **_):
        return self._with({'items': [{'name': BUCKET}]})

    def insert(self, bucket, name, body, media_body):
        self._kept[name] = media_body.data
        return self._with({'md5Hash': base64.b64encode(hashlib.md5(
            media_body.data).digest()).decode()})

    def get(self, bucket, object):
        self._there(object)
        return self._with({'size': str(len(self._kept[object]))})

    def get_media(self, bucket, object):
        self._there(object)
        return self._with(None, object)

    def _there(self, name):
        if name not in self._kept:
            raise _GoogleError('404 %s' % name)

    def execute(self, num_retries=0):
        return self._result

    # What Cinder's class for downloads has for a request.
    uri = ''

    @property
    def http(self):
        return self

    def request(self, uri, headers):
        data = self._kept[self._name]
        first, last = map(int, headers['range'].removeprefix(
            'bytes=').split('-'))
        answer = _Answer({'content-range': 'bytes %d-%d/%d'
                          % (first, last, len(data))})
        return answer, data[first:last + 1]


class _Answer(dict):
    status = 206


class _Download:
    """googleapiclient.http.MediaIoBaseDownload, whose rest Cinder has."""

    def __init__(self, fd, request, chunksize):
        self._fd, self._request, self._chunksize = fd, request, chunksize
        self._uri, self._progress = request.uri, 0
        self._total_size, self._done = None, False


def _upload(file, kind, chunksize, resumable):
    return types.SimpleNamespace(data=file.read())


class Google(Store):
    """Google's client is not in the environment of the tests."""

    driver = 'cinder.backup.drivers.gcs.GoogleBackupDriver'
    options = {'backup_gcs_bucket': BUCKET, 'backup_gcs_project_id': 'p',
               'backup_gcs_credential_file': 'credentials.json',
               'backup_gcs_reader_chunk_size': 100000}

    def start_store(self):
        self.kept = {}
        modules = {name: types.ModuleType(name) for name in (
            'google', 'google.auth', 'google.oauth2', 'google_auth_httplib2',
            'googleapiclient', 'googleapiclient.discovery',
            'googleapiclient.errors', 'googleapiclient.http')}
        modules['google.auth'].exceptions = types.SimpleNamespace(
            RefreshError=_GoogleError, DefaultCredentialsError=_GoogleError)
        modules['google.oauth2'].service_account = types.SimpleNamespace(
            Credentials=mock.Mock())
        modules['googleapiclient.discovery'].build = (
            lambda *_, **__: _Google(self.kept))
        errors = modules['googleapiclient.errors']
        errors.Error = errors.HttpError = _GoogleError
        media = modules['googleapiclient.http']
        media.HttpError = _GoogleError
        media.MediaIoBaseUpload = _upload
        media.MediaIoBaseDownload = _Download
        media.MediaDownloadProgress = lambda *_: None
        media.util = types.SimpleNamespace(
            positional=lambda _: lambda function: function)
        for name in ('discovery', 'errors', 'http'):
            setattr(modules['googleapiclient'], name,
                    modules['googleapiclient.' + name])
        self.enterContext(mock.patch.dict(sys.modules, modules))
        # Made of these modules, which the next test has not.
        name = self.driver.rpartition('.')[0]
        self.addCleanup(sys.modules.pop, name, None)

    def setUp(self):
        super().setUp()
        self.override_unit('gcs')

    def names(self):
        return sorted(self.kept)

    def get(self, name):
        return self.kept[name]

    def put(self, name, data):
        self.kept[name] = data

    def delete(self, name):
        del self.kept[name]
