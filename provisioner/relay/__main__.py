"""``python -m aliquot.provisioner.relay``: the relay host in the foreground."""

import sys

from .host_main import main

sys.exit(main())
