# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate-agent: the agent of a compute host.

It reads the nova.conf of the host.  SIGTERM and SIGINT stop it after the
requests in progress, a second signal stops it at once; SIGHUP reads the
options again that can be changed without a restart.
"""

from collections.abc import Callable
from collections.abc import Sequence
import queue
import signal
import sys

from oslo_config import cfg
from oslo_log import log
from oslo_privsep import priv_context
import pbr.version

from nova_dedup_migrate.agent import service
from nova_dedup_migrate.conf import agent as agent_options
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.conf import nova as nova_options
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.rpc import transport

LOG = log.getLogger(__name__)

PROGRAM = 'nova-dedup-migrate-agent'
_STOP = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent; return the exit status."""
    conf = cfg.CONF
    release = pbr.version.VersionInfo('nova-dedup-migrate').release_string()
    configure(conf, sys.argv[1:] if argv is None else argv, release)
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (*_STOP, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signals.put(number))
    kept = store.OperationStore(conf.dedup_migrate.operations_path,
                                conf.dedup_migrate.operations_kept)
    agent = service.AgentService(
        conf, transport.get_transport(conf), release,
        kept if conf.dedup_migrate.report_to_controller else None)
    agent.start()
    stop_metrics = _listen(conf.dedup_migrate.metrics_listen, kept, agent)
    while signals.get() == signal.SIGHUP:
        conf.mutate_config_files()
    for number in _STOP:
        signal.signal(number, signal.SIG_DFL)
    stop_metrics()
    agent.stop()
    return 0


def _listen(address: str, kept: store.OperationStore,
            agent: service.AgentService) -> Callable[[], None]:
    """Serve metrics if prometheus-client is installed; return the end."""
    try:
        from nova_dedup_migrate import metrics as listener
        from nova_dedup_migrate.agent import metrics
    except ImportError:
        LOG.info('There are no metrics: prometheus-client is not installed')
        return lambda: None
    return listener.listen(address, metrics.Metrics(
        kept, agent.outbox).registry)


def configure(conf: cfg.ConfigOpts, argv: Sequence[str],
              release: str) -> None:
    """Read the configuration and set up logging."""
    log.register_options(conf)
    options.register_opts(conf)
    agent_options.register_opts(conf)
    nova_options.register_opts(conf)
    conf(argv, project='nova', prog=PROGRAM, version=release)
    log.setup(conf, PROGRAM, release)
    priv_context.init(root_helper=['sudo'])


if __name__ == '__main__':
    sys.exit(main())
