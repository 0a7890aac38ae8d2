"""Labels of kernels on a user's own server: its notebooks name the kernels that its user owns."""

from __future__ import annotations

from jupyter_aliquot.gateway.remote.proxy import relabel


def test_own_kernels_have_the_labels_of_this_server_and_shared_ones_their_owners() -> None:
    kernels = [
        {"id": "mine", "access": "own", "label": ""},
        {"id": "seen", "access": "read", "label": "hers.ipynb"},
        {"id": "used", "access": "write", "label": "hers.ipynb"},
        {"id": "elsewhere", "access": "own", "label": "at the gateway"},
        {"id": "of an older gateway", "label": ""},
    ]
    ours = ("mine", "seen", "used", "of an older gateway")
    relabel(kernels, {kernel_id: "my.ipynb" for kernel_id in ours})
    labels = [kernel["label"] for kernel in kernels]
    assert labels == ["my.ipynb", "hers.ipynb", "hers.ipynb", "at the gateway", "my.ipynb"]


def test_requests_in_the_queue_have_the_labels_of_this_server() -> None:
    requests = [{"kernel_id": "mine", "label": "old.ipynb"}, {"kernel_id": "elsewhere", "label": "python3"}]
    relabel(requests, {"mine": "new.ipynb"}, "kernel_id")
    assert [one["label"] for one in requests] == ["new.ipynb", "python3"]
