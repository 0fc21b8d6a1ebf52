# SPDX-License-Identifier: Apache-2.0
import sys

from lab import cli

sys.exit(cli.main())
