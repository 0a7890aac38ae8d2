"""Run the relay host in the foreground: ``python -m jupyter_aliquot.provisioner.relay``."""

import sys

from jupyter_aliquot.provisioner.relay.host.main import main

sys.exit(main())
