# SPDX-License-Identifier: Apache-2.0
"""Errors that the API answers with."""

from __future__ import annotations

from nova_dedup_migrate import errors


class ApiError(errors.DedupMigrateError):
    """:cvar status: HTTP status"""

    status = 500
    template = 'the request failed'


class BadRequest(ApiError):
    status = 400
    template = '{reason}'


class Forbidden(ApiError):
    status = 403
    template = ('policy {policy} does not permit it; the roles of the token '
                'are: {roles}')


class NoSuchPath(ApiError):
    status = 404
    template = 'there is nothing at {path}'


class NoSuchMethod(ApiError):
    status = 405
    template = '{path} does not have {method}; it has {allowed}'

    allowed: str


class NotAcceptable(ApiError):
    status = 406
    template = '{reason}'


class TooLarge(ApiError):
    status = 413
    template = 'the body has more than {limit} bytes'


class WrongMediaType(ApiError):
    status = 415
    template = 'the body has to be application/json'


class TooMany(ApiError):
    status = 429
    template = ('more than {limit} requests of this user in a minute; try '
                'again in {seconds} s')

    seconds: int


class MalformedResponse(ApiError):
    status = 500
    template = 'the response is not as documented: {reason}'
