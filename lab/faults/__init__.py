# SPDX-License-Identifier: Apache-2.0
"""What can be done to a lab while an instance migrates.

=========== ===========================================================
module      faults
=========== ===========================================================
programs    a program of a host is ended, or stopped for a while
links       the migration network is cut, or slow
storage     the NAS hangs or fails; the destination's disks are full
requests    the migration is aborted, or has to complete
=========== ===========================================================
"""

from lab.faults import links
from lab.faults import programs
from lab.faults import requests
from lab.faults import storage
from lab.faults.fault import Fault
from lab.faults.fault import HAD_ARRIVED
from lab.faults.fault import HAD_LEFT
from lab.faults.fault import Scene
from lab.faults.programs import command_line
from lab.faults.programs import domain_state
from lab.faults.programs import qemus
from lab.faults.programs import session
from lab.faults.programs import writers

FAULTS = {fault.name: fault for fault in (
    *programs.FAULTS, *links.FAULTS, *storage.FAULTS, *requests.FAULTS)}

__all__ = ['FAULTS', 'HAD_ARRIVED', 'HAD_LEFT', 'Fault', 'Scene',
           'command_line', 'domain_state', 'qemus', 'session', 'writers']
