# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate: what became of the migrations from this host."""

import sys

from cliff import app
from cliff import commandmanager
from oslo_config import cfg
import pbr.version

from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.cmd import report
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.conf import paths
from nova_dedup_migrate.operations import store

_COMMANDS = {
    'report': report.ShowReport,
    'report list': report.ListReports,
    'report rounds': report.ListRounds,
}


class DedupMigrateApp(app.App):
    """The command; reads nova.conf for where reports are."""

    def __init__(self, **kwargs):
        manager = commandmanager.CommandManager('nova_dedup_migrate.cli')
        for name, command in _COMMANDS.items():
            manager.add_command(name, command)
        super().__init__(
            description='Reports of live migrations that left this host.',
            version=pbr.version.VersionInfo(
                'nova-dedup-migrate').release_string(),
            command_manager=manager, deferred_help=True, **kwargs)

    def build_option_parser(self, description, version, **kwargs):
        parser = super().build_option_parser(description, version, **kwargs)
        parser.add_argument(
            '--config-file', action='append', default=[], metavar='FILE',
            help='nova.conf of this host; may be given several times '
                 '(default: where Nova looks, /etc/nova/nova.conf)')
        parser.add_argument(
            '--config-dir', action='append', default=[], metavar='FOLDER',
            help='folder with files *.conf that are read after those')
        return parser

    def open_store(self):
        """Return the operations.store.OperationStore of this host.

        :raises ConfigurationError: nova.conf cannot be used
        """
        arguments = []
        for name, values in (('--config-file', self.options.config_file),
                             ('--config-dir', self.options.config_dir)):
            for value in values:
                arguments += [name, value]
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        paths.register_opts(conf)
        try:
            conf(arguments, project='nova', prog='nova-dedup-migrate')
            return store.OperationStore(conf.dedup_migrate.operations_path,
                                     conf.dedup_migrate.operations_kept)
        except (cfg.Error, ValueError) as error:
            raise errors.ConfigurationError(reason=error) from error


def main(argv=None):
    """Run the command; return the exit status."""
    return DedupMigrateApp().run(sys.argv[1:] if argv is None else argv)


if __name__ == '__main__':
    sys.exit(main())
