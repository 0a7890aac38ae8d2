"""``python -m jupyter_aliquot.provisioner.relay``: the relay host in the foreground."""

import sys

from jupyter_aliquot.provisioner.relay.host.main import main

sys.exit(main())
