from __future__ import annotations

import re

import pytest

from jupyter_aliquot.gateway.base.http_errors import HTTP_STATUS, http_error
from jupyter_aliquot.provisioner import errors


def tree(kind: type[errors.AliquotError]) -> set[type[errors.AliquotError]]:
    """Return the exceptions of errors.py below ``kind``.

    Other modules derive from them, and are mapped as their parents.
    """
    own = {child for child in kind.__subclasses__() if child.__module__ == errors.__name__}
    return {kind}.union(*(tree(child) for child in own)) if own else {kind}


def test_every_error_of_the_tree_has_a_status() -> None:
    assert set(HTTP_STATUS) == tree(errors.AliquotError)


def test_the_statuses_are_those_that_the_tree_draws() -> None:
    drawn = dict(re.findall(r"── (\w+) .*?(\d{3})", errors.__doc__ or ""))
    want_statuses = {kind.__name__: status for kind, status in HTTP_STATUS.items() if kind.__name__ in drawn}
    assert {name: int(status) for name, status in drawn.items()} == want_statuses


@pytest.mark.parametrize("kind", sorted(tree(errors.AliquotError), key=lambda kind: kind.__name__))
def test_the_message_reaches_the_wire(kind: type[errors.AliquotError]) -> None:
    translated = http_error(kind("asked 8 GiB, 3 GiB free"))
    assert translated.log_message == "asked 8 GiB, 3 GiB free"
    assert 400 <= translated.status_code < 600


def test_a_class_of_another_module_is_mapped_as_its_parent() -> None:
    class Narrower(errors.LimitError):
        pass

    assert http_error(Narrower("x")).status_code == 403
