# SPDX-License-Identifier: Apache-2.0
"""Neutron's mechanism driver of the lab, which binds every port to a tap.

Nova makes the tap, and lab.hosts.taps puts it into the host's bridge.  There
is no agent to wait for, so a port is ACTIVE as soon as it is bound.
"""

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api


class LabMechanismDriver(api.MechanismDriver):

    def initialize(self):
        pass

    @property
    def connectivity(self):
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context):
        vnic = context.current.get(portbindings.VNIC_TYPE,
                                   portbindings.VNIC_NORMAL)
        if vnic != portbindings.VNIC_NORMAL:
            return
        for segment in context.segments_to_bind:
            if segment[api.NETWORK_TYPE] == constants.TYPE_LOCAL:
                context.set_binding(
                    segment[api.ID], portbindings.VIF_TYPE_TAP,
                    {portbindings.CAP_PORT_FILTER: False},
                    status=constants.PORT_STATUS_ACTIVE)
                return

    def update_port_postcommit(self, context):
        # A binding that is activated, as at the end of a live migration,
        # leaves the port DOWN for an agent to find.
        if (context.vif_type == portbindings.VIF_TYPE_TAP
                and context.status == constants.PORT_STATUS_DOWN):
            directory.get_plugin().update_port_status(
                context.plugin_context, context.current['id'],
                constants.PORT_STATUS_ACTIVE, context.host)
