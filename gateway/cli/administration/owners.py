"""The commands `aliquot message` and `aliquot end`: write to a kernel's owner, and end the kernel."""

from __future__ import annotations

from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.cli.commands.base import WHICH_GATEWAY
from jupyter_aliquot.gateway.cli.commands.kernel_command import KernelCommand
from jupyter_aliquot.gateway.terminal.tables import printable


class MessageCommand(KernelCommand):
    """Send the message to the gateway: the node agent knows no pages."""

    name = "aliquot message"
    usage = "aliquot message KERNEL TEXT [options]"
    description = (
        """Write to the owner of a running kernel. JupyterLab shows the text once, as a notification.

    For administrators. KERNEL is its id, the first letters of it, or its notebook's name. TEXT is one line of at most
    500 characters. It replaces an earlier message about the kernel. The gateway's log has it with its sender's name.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot message train.ipynb "Please end it by six: the GPU is reserved for a course."
    """

    def start(self) -> None:
        """Called by Application.start."""
        word, text = self.words(2, 2)
        kernel = self.kernel(word, takes_ids=True)
        kernel.message_owner(text)
        self.tell({"kernel_id": kernel.kernel_id, "text": text}, f"{printable(word)}: sent to its owner")

    def words(self, least: int, most: int) -> list[str]:
        """Return the kernel and the text. Raises UsageError."""
        if len(self.extra_args) == 1:
            raise UsageError(f"name a text, in quotes; usage: {self.usage}")
        if self.extra_args[1:] and not self.extra_args[1].strip():
            raise UsageError(f"the text is empty; usage: {self.usage}")
        return super().words(least, most)


class EndCommand(KernelCommand):
    """Send the request to the gateway, which ends the kernel as Jupyter does."""

    name = "aliquot end"
    usage = "aliquot end KERNEL [options]"
    description = (
        """End a running kernel, or one that waits for a GPU. Its variables are lost.

    KERNEL is its id, the first letters of it, or its notebook's name. An administrator may end every kernel of the
    gateway. A kernel that another program started is ended there.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot end train.ipynb
    """

    def start(self) -> None:
        """Called by Application.start."""
        word = self.words(1, 1)[0]
        kernel = self.kernel(word, takes_ids=True)
        kernel.end()
        self.tell({"kernel_id": kernel.kernel_id}, f"{printable(word)} was ended")
