"""The exception tree. Only gateway/base/http_errors.py maps it to HTTP; a test checks the map.

AliquotError
 ├── RequestError            the request itself is wrong                       400
 │    ├── SizeNameError          a kernelspec name that is no valid size        404 where a name is looked up
 │    ├── TakenError             the name is the configuration's own            409
 │    └── NeverFitsError         no node could ever hold it                     409
 ├── GrantError              the request is right, the grant is not to be had
 │    ├── NoRoomError            it fits, but not now: queue, or plan again     503
 │    ├── QueueTimeoutError      it waited too long behind others               503
 │    ├── WithdrawnError         the requester withdrew it                      410
 │    ├── LimitError             over the user's limit                          403
 │    │    └── UnknownUseError       what was used of it cannot be read now        503
 │    └── GrantLostError         the grant ended under the kernel               409
 ├── AgentError              the node agent
 │    ├── AgentUnavailableError  no answer at the socket                        503
 │    ├── AgentProtocolError     it answered what we cannot read                502
 │    └── DeviceLostError        a device vanished                              503
 ├── RelayError              the relay of a kernel, or the relay host          500
 │    ├── RelayUnavailableError  no answer at its socket                        503
 │    ├── RelayProtocolError     it answered what we cannot read                502
 │    └── RelayRefusedError      it answered no                                 500
 ├── EngineError             the container engine refuses, or fails            503
 │    └── EngineUnavailableError  it does not answer                            503
 ├── LaunchError             the kernel could not be started                   500
 │    ├── AccountError           no kernel may run as its owner's account       403
 │    ├── FolderError            a shared folder is not there, or is another    409
 │    └── InterceptionError      the hook does not hold in the kernel           500
 ├── HubError                JupyterHub, which knows the owners of tokens
 │    ├── HubAwayError           it does not answer                             503
 │    └── TooManyTokensError     more wrong tokens came than it is asked about  429
 └── StateError              the gateway's own state cannot be used            500
"""

from __future__ import annotations


class AliquotError(Exception):
    """Base of all errors that Aliquot raises on purpose.

    The message says what was requested, what was found, and what to do.
    """


class RequestError(AliquotError):
    """The request itself is wrong: asking again will not help."""


class SizeNameError(RequestError):
    """A kernelspec name ends in a size that is not valid."""


class TakenError(RequestError):
    """The name of the object to change belongs to the configuration."""


class NeverFitsError(RequestError):
    """The request is larger than the largest node could ever hold."""


class GrantError(AliquotError):
    """The request is right, but no grant could be had for it."""


class NoRoomError(GrantError):
    """The request fits the node, but not beside what is reserved now."""


class QueueTimeoutError(GrantError):
    """The request waited in the queue for as long as its requester allowed."""


class WithdrawnError(GrantError):
    """The requester withdrew the request before it was granted."""


class LimitError(GrantError):
    """The request goes over what its user may hold."""


class UnknownUseError(LimitError):
    """An unknown use: what was taken of a limit cannot be read now."""


class GrantLostError(GrantError):
    """The grant ended while its kernel was alive or starting."""


class AgentError(AliquotError):
    """The node agent could not do its part."""


class AgentUnavailableError(AgentError):
    """The node agent does not answer at its socket."""


class AgentProtocolError(AgentError):
    """The agent answered something that this version cannot read."""


class DeviceLostError(AgentError):
    """A device that was granted, or asked for, is no longer there."""


class RelayError(AliquotError):
    """The relay of a kernel, or the relay host, could not do its part."""


class RelayUnavailableError(RelayError):
    """The relay, or the relay host, does not answer at its socket."""


class RelayProtocolError(RelayError):
    """The relay answered something that this version cannot read."""


class RelayRefusedError(RelayError):
    """The relay answered no; ``code`` is one of docs/reference/relay.md."""

    def __init__(self, message: str, code: str = "internal") -> None:
        super().__init__(message)
        self.code = code


class EngineError(AliquotError):
    """The container engine refused the request, or failed at it."""

    @property
    def is_passing(self) -> bool:
        """True if the same request may succeed later without a change."""
        return False


class EngineUnavailableError(EngineError):
    """The container engine does not answer, or is not found."""


class LaunchError(AliquotError):
    """The kernel's process could not be started."""


class AccountError(LaunchError):
    """The account that a kernel is to run as is missing, or is no person's."""


class FolderError(LaunchError):
    """A folder for the kernel is missing, behind a link, or not the one that was checked."""


class InterceptionError(LaunchError):
    """The self-check found that the hook does not hold in the kernel's process."""


class HubError(AliquotError):
    """JupyterHub, which knows the owners of tokens, was not asked or did not answer."""


class HubAwayError(HubError):
    """JupyterHub does not answer: the gateway admits no user without its answer."""


class TooManyTokensError(HubError):
    """Too many wrong tokens came: for ``wait_seconds`` no more unknown ones are looked up."""

    def __init__(self, message: str, wait_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds


class StateError(AliquotError):
    """The folder of the gateway's records of its kernels is unusable, or another gateway's."""
