"""The words of a connection between gateway and sidecar.

A connection begins with a line ``TOKEN CHANNEL``, which the sidecar answers with ``ok`` once all of
the kernel's sockets are there. The channel is one of them, ``kept`` for a relay, or ``life``: that stays
open for as long as the pod lives. An older sidecar knows no ``life-2``, and keeps nothing. Both sides
import this module, and so it imports nothing.
"""

# The numbers of shell, iopub, stdin, heartbeat and control in a connection file over ipc.
CHANNELS = ("1", "2", "3", "4", "5")
KEPT = "kept"
LIFE, LIFE_BEFORE = "life-2", "life"
OK = b"ok\n"
LONGEST_LINE = 1 << 16
