"""Restarts of a kernel that is being ended: a user's is refused, and the restarter's is left out."""

from __future__ import annotations

import pytest

from jupyter_aliquot.gateway.kernels.restarts import Restarts
from jupyter_aliquot.provisioner.errors import WithdrawnError


async def test_the_restarter_leaves_a_kernel_that_is_being_ended_as_it_is() -> None:
    restarts = Restarts()
    with restarts.none(is_meant=True):
        restarts.found_dead()
        with restarts.one("k1") as may_start:
            assert (may_start, len(restarts.under_way())) == (False, 1)
    assert restarts.under_way() == set()


async def test_the_restarter_leaves_a_kernel_whose_end_began_during_the_restart() -> None:
    restarts = Restarts()
    restarts.found_dead()
    with restarts.none(is_meant=False), restarts.one("k1") as may_start:
        assert may_start
        restarts.is_being_ended = True
        restarts.refuse_if_being_ended("k1")
    assert restarts.under_way() == set()


async def test_a_users_restart_of_a_kernel_that_is_being_ended_is_refused() -> None:
    restarts = Restarts()
    with restarts.none(is_meant=True):
        with pytest.raises(WithdrawnError, match="it is being ended"), restarts.one("k1"):
            pytest.fail("the restart began")
        # The note of a dead kernel is for one restart alone.
        restarts.found_dead()
        with restarts.one("k1"):
            pass
        with pytest.raises(WithdrawnError), restarts.one("k1"):
            pytest.fail("the restart began")
