# SPDX-License-Identifier: Apache-2.0
import configparser
import importlib
import pathlib
import unittest
from unittest import mock

try:
    from neutron_lib.plugins import directory
    from neutron_lib.plugins.ml2 import api
except ImportError as error:
    raise unittest.SkipTest('there is no Neutron: %s' % error) from error

from lab.services import neutron_driver
from lab.services import python
from nova_dedup_migrate.tests import base


class TestDriver(base.TestCase):

    def setUp(self):
        super().setUp()
        self.driver = neutron_driver.LabMechanismDriver()
        self.driver.initialize()
        self.context = mock.create_autospec(api.PortContext, instance=True)
        # the real one has it, though the interface does not tell
        self.context.plugin_context = mock.sentinel.context
        self.context.current = {'id': 'port',
                                'binding:vnic_type': 'normal'}
        self.context.segments_to_bind = [
            {'id': 'one', 'network_type': 'vxlan'},
            {'id': 'two', 'network_type': 'local'},
            {'id': 'three', 'network_type': 'local'}]

    def test_binds_a_tap_that_need_not_be_waited_for(self):
        self.driver.bind_port(self.context)
        self.context.set_binding.assert_called_once_with(
            'two', 'tap', {'port_filter': False}, status='ACTIVE')

    def test_leaves_what_it_cannot_do(self):
        self.context.current['binding:vnic_type'] = 'direct'
        self.driver.bind_port(self.context)
        self.context.current['binding:vnic_type'] = 'normal'
        self.context.segments_to_bind = [{'id': 'one',
                                          'network_type': 'vlan'}]
        self.driver.bind_port(self.context)
        self.context.set_binding.assert_not_called()

    def updated(self, vif_type, status):
        self.context.vif_type, self.context.status = vif_type, status
        self.context.host = 'compute2'
        with mock.patch.object(directory, 'get_plugin',
                               autospec=True) as plugin:
            self.driver.update_port_postcommit(self.context)
        return plugin.return_value.update_port_status

    def test_a_binding_that_was_activated_is_up(self):
        self.updated('tap', 'DOWN').assert_called_once_with(
            mock.sentinel.context, 'port', 'ACTIVE', 'compute2')

    def test_other_changes_leave_the_status(self):
        self.updated('tap', 'ACTIVE').assert_not_called()
        self.updated('unbound', 'DOWN').assert_not_called()

    def test_is_what_the_configuration_names(self):
        parser = configparser.ConfigParser()
        parser.read_string(python._ENTRY_POINTS)
        points = parser['neutron.ml2.mechanism_drivers']
        conf = configparser.ConfigParser()
        conf.read_string((pathlib.Path(python.__file__).parents[1]
                          / 'templates' / 'ml2_conf.ini').read_text())
        module, name = points[conf['ml2']['mechanism_drivers']].split(':')
        self.assertIs(neutron_driver.LabMechanismDriver, getattr(
            importlib.import_module(module), name))
