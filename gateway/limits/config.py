"""The settings against abuse: how much of a server one user, or one address, may use.

The limits of an address are for clients without a login. The defaults are far above the needs of
users with many notebooks. c.Aliquot.user_limit_gpus limits GPUs.
"""

from __future__ import annotations

import math
from typing import Any

from traitlets import Float, Int, TraitError, validate
from traitlets.config import Configurable

from jupyter_aliquot.provisioner.relay.wire.files import ALL_UNSENT_BYTES, UNREAD_BYTES, UNSENT_BYTES, USER_UNSENT_BYTES


class Limits(Configurable):
    """Limits, of which 0 stands for none.

    Counts and rates do not hold for administrators, sizes hold for all.
    """

    kernels_per_user = Int(
        100, help="How many kernels one user may have at once, those without a GPU and those that wait included."
    ).tag(config=True)
    queued_per_user = Int(50, help="How many kernels of one user may wait for a GPU at once.").tag(config=True)
    queue_length = Int(1000, help="How many kernels of all users may wait for a GPU at once.").tag(config=True)
    requests_per_second = Float(
        100.0,
        help="How many requests a second one user may make over time, opened websockets included; and, of those who "
        "are not logged in, one address.",
    ).tag(config=True)
    requests_burst = Int(
        2000, help="How many requests may come at once, before requests_per_second holds: pages load many files."
    ).tag(config=True)
    message_bytes = Int(
        10 << 20, help="The largest message that a client may send on a websocket, to a kernel for example."
    ).tag(config=True)
    output_bytes = Int(
        10 << 20,
        help="The largest message that a kernel may send to a client of a server of several users; in the place of a "
        "larger one its cell says so. Servers in gateway mode take none above 10 MiB.",
    ).tag(config=True)
    messages_per_second = Float(
        1000.0,
        help="How many messages a second one websocket to a kernel may send over time, after a burst of as many. More "
        "are read later: they wait with their sender, and none is lost.",
    ).tag(config=True)
    unread_bytes = Int(
        UNREAD_BYTES,
        help="How many bytes of requests may wait for one kernel that does not read them; each counts for about 2 KiB "
        "more than it is long. The gateway answers more with an error. At least message_bytes.",
    ).tag(config=True)
    unsent_output_bytes = Int(
        UNSENT_BYTES,
        help="How many bytes of one kernel's output its relay keeps, in memory and on disk, while no client takes it. "
        "Beyond it the oldest output goes, and its cell says so.",
    ).tag(config=True)
    unsent_output_bytes_per_user = Int(
        USER_UNSENT_BYTES,
        help="How many bytes of output the relays of one user's kernels keep on disk, together.",
    ).tag(config=True)
    unsent_output_bytes_total = Int(
        ALL_UNSENT_BYTES,
        help="How many bytes of output the relays of all kernels keep on disk, together. They also leave a tenth of "
        "the disk free, or 1 GiB of a large one. The relay host's --spill-dir or ALIQUOT_SPILL_DIR chooses the folder.",
    ).tag(config=True)
    websockets_per_user = Int(
        1000,
        help="How many websockets one user may have open at once: one each for a kernel of a tab, and for its panel.",
    ).tag(config=True)
    body_bytes = Int(
        1 << 20,
        help="The largest body of a request for kernels, sessions or Aliquot's own API; on `aliquot serve`, of every "
        "request. Elsewhere c.ServerApp.max_body_size holds.",
    ).tag(config=True)

    @validate(
        "kernels_per_user",
        "queued_per_user",
        "queue_length",
        "requests_per_second",
        "requests_burst",
        "message_bytes",
        "output_bytes",
        "messages_per_second",
        "unread_bytes",
        "unsent_output_bytes",
        "unsent_output_bytes_per_user",
        "unsent_output_bytes_total",
        "websockets_per_user",
        "body_bytes",
    )
    def _is_not_negative(self, proposal: dict[str, Any]) -> float:
        name, value = proposal["trait"].name, proposal["value"]
        if not 0 <= value < math.inf:
            raise TraitError(f"c.Limits.{name}: {value!r} is not valid. Use a number, 0 or more; 0 for no limit")
        # Several are set at once. This is checked when all of them are.
        if 0 < self.unread_bytes < self.message_bytes and name in ("unread_bytes", "message_bytes"):
            raise TraitError(
                f"c.Limits.{name}: {value!r} leaves no room for one message: unread_bytes is "
                f"{self.unread_bytes} and message_bytes {self.message_bytes}. Raise unread_bytes, or "
                "lower message_bytes"
            )
        return value  # type: ignore[no-any-return]  # int or float, as the trait is
