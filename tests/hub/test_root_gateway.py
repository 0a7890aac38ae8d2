"""A Hub's gateway that runs as root starts no kernel as a process, which would make each user root."""

from __future__ import annotations

import os
import urllib.error

import pytest
from hub_process import HubProcess

HUB = {"with_lab": False, "options": ("--Aliquot.allow_root_kernels=False",)}


@pytest.mark.skipif(os.geteuid() != 0, reason="the gateway of these tests runs as this account")
@pytest.mark.parametrize("name", ["python3", "python3.gpu-0.25"])
def test_a_kernel_that_would_be_a_process_of_root_is_refused(name: str, a_hub: HubProcess) -> None:
    token = a_hub.token_of("alice")
    with pytest.raises(urllib.error.HTTPError) as caught:
        a_hub.gateway("api/kernels", "POST", {"name": name}, token=token)
    words = caught.value.read().decode()
    assert (caught.value.code, "this gateway runs as root. Choose an image" in words) == (403, True), words
    assert a_hub.gateway("api/kernels", token=token) == []
