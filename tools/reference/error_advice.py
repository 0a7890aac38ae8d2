"""The remedy of each error class whose text users read, and the classes that no user meets."""

from __future__ import annotations

# Names that a cell's error has. They are no Python classes of ours: relays and the gateway write them.
IN_CELLS = {
    "CellNotRun": "the kernel never got this cell, or did not start. Its text has the reason. Run the cell again.",
    "KernelNotResponding": (
        "too many messages wait for the kernel. Interrupt or restart it, or wait until it continues."
    ),
    "KeyboardInterrupt": "the cell was stopped while it waited for its kernel or for GPU memory.",
}

ADVICE = {
    "AliquotError": "the message says it. All classes below that have a status are of this kind.",
    "RequestError": "correct the request; sending it again does not help.",
    "SizeNameError": "choose a name of `aliquot sizes`, or one of the [grammar](sizes.md).",
    "NoSuchSize": "choose a name of `aliquot sizes`, or one of the [grammar](sizes.md).",
    "TakenError": "choose another name: the configuration has this one.",
    "NeverFitsError": "request less: this node can never hold it.",
    "QuotaFileError": (
        "correct the lines that the message names. [The file](../how-to/teams-and-quotas.md) is read again "
        "when it changes."
    ),
    "GrantError": "read the message; the classes below name the cause.",
    "NoRoomError": "wait, end a kernel, or choose a smaller size.",
    "QueueTimeoutError": (
        "start the kernel again, or raise the client's start time-out; `aliquot queue` shows the queue."
    ),
    "WithdrawnError": "start the kernel again: its request was taken back.",
    "LimitError": (
        "end a kernel of yours, choose a smaller size, or ask an administrator for a higher "
        "[limit](../how-to/limits.md)."
    ),
    "UnknownUseError": (
        "try again in a moment; `aliquot status` tells administrators why "
        "[the accounting](../how-to/usage-and-budgets.md) cannot be read."
    ),
    "GrantLostError": "restart the kernel: it has no part of a GPU any more.",
    "AgentError": "run `aliquot doctor`.",
    "AgentUnavailableError": (
        "start the node agent (`aliquot agent`, or its unit); `aliquot doctor` shows where it is looked for."
    ),
    "AgentProtocolError": "run gateway and agent from one release, and restart both.",
    "DeviceLostError": "look for an Xid error in the machine's log; reset the GPU or restart the machine.",
    "RelayError": "restart the kernel; the relay's log is `relay.log` in the runtime folder.",
    "RelayUnavailableError": "restart the kernel. If that fails, run `aliquot doctor`.",
    "RelayProtocolError": "restart the kernel: its relay is of another release.",
    "RelayRefusedError": "read the message; `relay.log` in the runtime folder has more.",
    "EngineError": "read the engine's words: it refuses an image, a device or a folder; or start the kernel again.",
    "EngineUnavailableError": (
        "look whether Docker or Podman runs, and whether the gateway's account may use its socket."
    ),
    "ClusterError": "look at the cluster's events; [Kubernetes](../explanation/kubernetes.md) says what is there.",
    "ClusterAwayError": "look whether the API server answers, and at the gateway's credentials.",
    "LaunchError": "read the message: program, folder or environment of the kernelspec is wrong.",
    "AccountError": "ask root: the account is missing, or not in `/etc/aliquot/kernel-accounts`.",
    "FolderError": "correct the folder's configuration, or wait for the disk; links in it are refused.",
    "InterceptionError": "see [enforcers](../how-to/enforcers.md): GPU calls of this kernel would bypass the hook.",
    "HubError": "look at the Hub's log.",
    "HubAwayError": "look whether JupyterHub answers at the address in the gateway's log.",
    "TooManyTokensError": "wait a minute, and log in again.",
    "StateError": "look at the folder that the message names: another gateway uses it, or it cannot be written.",
    "NameTakenError": "end the other gateway of this name, or set `c.Aliquot.gateway_name`.",
    "TraceError": "correct the trace's line that the message names.",
    "NoSuchKernelError": "take a name or id of `aliquot status`.",
    "ChangeError": "read the message: the gateway refused the change.",
    "NoGatewayHere": "start `aliquot lab` or `aliquot serve`, or give the address of yours.",
    "GatewayRefusal": "read the message: it is the gateway's.",
    "StackError": "read the message; `aliquot doctor` shows what is missing.",
    "TokenRefusedError": "make a new token for the agent ([several nodes](../how-to/several-nodes.md)).",
    "TokenExpiredError": "let the agent dial with the token that the kubelet renewed; its log names the file.",
    "TokenUnknownError": "name a token that the gateway lists.",
    "NodeConflictError": "give each node a name of its own, or end the other agent.",
    "UntrustedGatewayError": "tell an administrator: another account listens at the gateway's address.",
    "UsageError": "correct the command line; `--help` shows it.",
    "CommandError": "read the message; commands end with 1 then.",
    "ListenerError": "choose another port, or end the program that has this one.",
    "TableBusyError": "try again in a moment: too many requests of this kind are under way.",
    "KernelSpecFileError": "correct the file that the message names.",
    "HubConfigError": "correct the call of `configure()` ([JupyterHub](../how-to/jupyterhub.md)).",
    "SizeChoiceError": "choose another size on the server options page.",
    "GatewayChoiceError": "choose another GPU server on the server options page.",
    "GatewayAwayError": "choose another GPU server, or wait until this one answers.",
    "AccountListError": "correct `/etc/aliquot/kernel-accounts`; only root may be able to change it.",
    "ConfigurationError": "correct the Hub's configuration file that the message names.",
    "NoRelayError": "read the message: it says why no relay can stand before this kernel.",
    "PathError": "set `ALIQUOT_RUNTIME_DIR` to a short path of your own.",
    "ActuatorError": "choose another mechanism ([how kernels share GPU time](../how-to/actuators.md)).",
    "EnforcerError": "choose another [enforcer](../how-to/enforcers.md), or mend what the message names.",
    "DeviceClaimedError": "use the agent of the account that the message names, or end it.",
    "DriverError": "look at the driver with `nvidia-smi` and at the machine's log.",
    "StartError": "read the message: agent or relay host could not start.",
    "TenantError": "correct the option `--account` of the relay host.",
    "AgentStartError": "read `agent.log` in the runtime folder.",
    "AgentClientError": "run `aliquot doctor`.",
    "AgentUnreachable": "start the node agent, or look at its socket with `aliquot doctor`.",
    "AgentRefused": "read the message: it is the agent's.",
    "AgentUnreadable": "run both sides from one release, and restart them.",
    "Refused": "read the message: the agent refused the request. REST has it as a GrantError or RequestError.",
    "Refusal": (
        "read the message: a placement or a relay's request was refused. REST has it as one of the classes above."
    ),
    "ClientError": "correct the address, token or certificate that you gave to the client.",
    "NoAnswerError": "look whether the server runs at that address; then ask again.",
    "AnswerError": "check the address: another server answers, or one of another release.",
    "RefusedError": "read the message: it is the server's.",
    "InvalidRequestError": "correct the request; sending it again does not help.",
    "NotAllowedError": "use a token of a user who may do this.",
    "NotFoundError": "take an id that `kernels()` lists.",
    "ConflictError": "read the message; wait, or end what is in the way.",
    "TooManyRequestsError": "send fewer requests; the client waits by itself, for a while.",
    "ServerError": "look at the gateway's log, and run `aliquot doctor` there.",
    "DemoError": "read the message; `make demo` ends with 1 then.",
    "NotebookError": "read the message: the notebook cannot be played.",
}

# Classes that are caught where they are raised, or whose text goes to a log or is part of another message alone.
INTERNAL = {
    "AllocationError": "the agent tells the kubelet, which refuses the pod",
    "ArenaFullError": "a swap waits for host memory",
    "CheckpointError": "the agent leaves the kernel as it is",
    "ContainerNotVisible": "the gateway logs it",
    "DialError": "the agent logs it, and dials again",
    "DoubtError": "recovery counts a kernel as in doubt",
    "HierarchyError": "a quota file is checked before",
    "InvisiblePeerError": "the agent refuses the connection",
    "JournalError": "the agent's log",
    "LedgerError": "the agent's log",
    "LockHeldError": "another process is at it",
    "MalformedError": "the agent refuses the connection",
    "MoveError": "part of a device's overcommit_reason",
    "NoGatewayError": "the provisioner asks the agent instead",
    "NotWantedError": "a preparation is called off",
    "PodsUnknownError": "the agent logs it, and asks the kubelet again",
    "WireError": "the agent takes the kubelet for one that does not answer",
    "OwnerGoneError": "the process ended",
    "ProbeError": "the agent's log",
    "ProtocolError": "a relay's log",
    "RecordError": "the gateway's log",
    "SpillFullError": "a notice in the cell's output",
    "TableError": "the build",
    "UnreachableError": "a relay's log",
    "UnreadableRecordError": "a record counts as missing",
    "UnreadableReportError": "becomes AgentUnreadable",
    "UnsureError": "recovery asks again",
}
