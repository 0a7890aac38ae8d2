"""The numbers of a kernel's sockets over ipc, by their names in a connection file.

A module of its own: a pod's sidecar, which starts beside the kernel, imports it and no dataclasses.
"""

FRONT_PORTS = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "hb_port": 4, "control_port": 5}
