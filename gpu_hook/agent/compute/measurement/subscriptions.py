"""The subscriptions of one process to the activity pages of its peers, sent through ``Notify``.

A number is free again only after the process received the notice that its peer is gone, in the
order of the socket. The agent sends a notice again later if a full socket does not take it: then
the subscriptions are late, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.pages.shared_page import SharedPage
from jupyter_aliquot.gpu_hook.protocol.codec import (
    ACTIVITY_PAGE_BYTES,
    ACTIVITY_PAGE_MAGIC,
    MAX_PEERS,
    VERSION,
    ActivityPage,
    ActivityPageKind,
    ActivityPageNotice,
)

Notify = Callable[[ActivityPageNotice, int | None], bool]

AGGREGATE = 0  # as ``owner``: no session has this number


@dataclass(frozen=True)
class Subscription:
    """An activity page of session ``owner``, its ``page_device``, which is ``device`` to the reader."""

    owner: int
    device: int
    page_device: int


class Subscriptions:
    """The activity pages that one process was told to read."""

    def __init__(self) -> None:
        self._told: dict[Subscription, int] = {}

    @property
    def told(self) -> Mapping[Subscription, int]:
        return self._told

    def bring_up_to_date(self, wanted: Mapping[Subscription, int], notify: Notify) -> bool:
        """Send the difference to ``wanted`` (place → descriptor).

        Return False if a full socket did not take all of it.
        """
        for place, number in list(self._told.items()):
            if place not in wanted:
                if not notify(ActivityPageNotice(ActivityPageKind.GONE, number), None):
                    return False
                del self._told[place]
        for place, descriptor in wanted.items():
            if place not in self._told and not self._introduce(place, descriptor, notify):
                return False
        return True

    def _introduce(self, place: Subscription, descriptor: int, notify: Notify) -> bool:
        number = min(set(range(MAX_PEERS)) - set(self._told.values()))
        if not notify(ActivityPageNotice(ActivityPageKind.PEER, number, place.device, place.page_device), descriptor):
            return False
        self._told[place] = number
        return True


class AggregateActivityPage:
    """An activity page that the agent writes, for production of more processes than one process can read.

    It shows work if any of them had work in the last sample, and so is late by the time between
    samples.
    """

    def __init__(self) -> None:
        self._page = SharedPage("aliquot-aggregate-page", other_side_writes=False, size_bytes=ACTIVITY_PAGE_BYTES)
        self._page.half_words[ActivityPage.VERSION // 4] = VERSION
        self._page.half_words[ActivityPage.MAGIC // 4] = ACTIVITY_PAGE_MAGIC

    @property
    def reader(self) -> int:
        return self._page.descriptor

    def show(self, is_active: bool, now: int) -> None:
        start = ActivityPage.DEVICES
        if self._page.half_words[start // 4] != is_active:
            self._page.words[(start + ActivityPage.SINCE) // 8] = now
            self._page.half_words[(start + ActivityPage.IS_ACTIVE) // 4] = is_active

    def close(self) -> None:
        self._page.close()


def first_subscriptions(places: Mapping[Subscription, int], count: int) -> dict[Subscription, int]:
    """Return the places of the processes that came first.

    They do not change when another process comes.
    """
    return dict(sorted(places.items(), key=lambda item: item[0].owner)[:count])
