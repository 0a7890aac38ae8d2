"""Play a user of a bare server's Hub: start a server and a kernel with a GPU size, and tell what it is.

Run it on that server: ``python server_visitor.py HUB TOKEN USER``. The token is a service's that may
start servers.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hub_kernels import run_cell

SECONDS = 240.0
CELL = """
import os, pwd
held = sum("ALIQUOT" in name for name in os.environ) > 0
print(pwd.getpwuid(os.getuid()).pw_name, os.path.expanduser("~"), os.getcwd(), held)
"""


def ask(url: str, token: str, method: str = "GET", body: object = None) -> Any:
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method=method)
    request.add_header("Authorization", f"token {token}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.loads(answer.read() or b"null")


def answers(url: str, token: str) -> bool:
    """Tell whether the Hub's proxy knows the way to the Hub: it starts before the Hub does."""
    try:
        ask(url, token)
    except OSError:
        return False
    return True


def wait_until(claim: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.2)  # between two looks at processes of another account


def main(hub: str, token: str, user: str) -> None:
    api = f"{hub}/hub/api/users/{user}"
    wait_until(lambda: answers(f"{hub}/hub/api/", token))
    ask(api, token, "POST")
    ask(f"{api}/server", token, "POST", {"gpu": "0.25"})
    wait_until(lambda: ask(api, token)["servers"].get("", {}).get("ready"))
    own = ask(f"{api}/tokens", token, "POST", {"note": "of a test"})["token"]
    server = f"{hub}/user/{user}"
    kernel = ask(f"{server}/api/kernels", own, "POST", {"name": "python3"})
    said = run_cell(server, own, kernel["id"], CELL)
    print(json.dumps({"kernelspec": kernel["name"], "said": said.split()}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.url}: {error.code} {error.read().decode(errors='replace')}")
