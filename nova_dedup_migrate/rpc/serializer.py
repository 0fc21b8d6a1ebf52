# SPDX-License-Identifier: Apache-2.0
"""How requests and replies cross the message bus."""

from __future__ import annotations

from typing import Any

from oslo_context import context
from oslo_versionedobjects import base
from oslo_versionedobjects import exception

from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects


class DedupSerializer(base.VersionedObjectSerializer):
    """Objects in full, of the caller's context only its request.

    The agent acts for the host and not for a user, so the user's token
    stays where it is.
    """

    OBJ_BASE_CLASS = objects.DedupObject

    _KEPT = ('request_id', 'global_request_id')

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        """Make the object.

        :raises MalformedMessage:
        :raises IncompatibleObjectVersion: only its version is not known
        """
        try:
            return super().deserialize_entity(ctxt, entity)
        except exception.IncompatibleObjectVersion:
            raise
        except (exception.VersionedObjectsException, ValueError, TypeError,
                KeyError, AttributeError) as error:
            raise errors.MalformedMessage(reason=error) from error

    def serialize_context(self, ctxt: Any) -> dict[str, str]:
        if not isinstance(ctxt, dict):
            ctxt = {name: getattr(ctxt, name, None) for name in self._KEPT}
        return self._keep(ctxt)

    def deserialize_context(self, ctxt: dict[str, Any]
                            ) -> context.RequestContext:
        kept = self._keep(ctxt)
        return context.RequestContext(
            overwrite=False, request_id=kept.get('request_id'),
            global_request_id=kept.get('global_request_id'))

    def _keep(self, ctxt: dict[str, Any]) -> dict[str, str]:
        return {name: ctxt[name] for name in self._KEPT
                if isinstance(ctxt.get(name), str)}
