"""`aliquot status` where no agent runs: it shows the gateway that Jupyter's variables name.

It does so only if it can read that gateway's answer.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.status.report import StatusSnapshot, status_report
from jupyter_aliquot.gpu_hook.client.client import query, read_status

from .test_status_watch import COMPUTE, kernel, node, part

OK = b"HTTP/1.1 200 OK\r\n"
Asked = Callable[..., tuple[int, str, str]]


@pytest.fixture
def asked(run_aliquot: Any, an_environment: dict[str, str]) -> Iterator[Asked]:
    """Run `aliquot status` with a gateway that answers these bytes and hangs up.

    Returns the command's exit code, output and errors.
    """
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        an_environment["JUPYTER_GATEWAY_URL"] = f"http://127.0.0.1:{server.getsockname()[1]}"
        an_environment["JUPYTER_GATEWAY_AUTH_TOKEN"] = "t"

        def serve() -> None:
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1 << 16)
                    if not answers:
                        return
                    connection.sendall(answers[-1])

        thread = threading.Thread(target=serve)
        thread.start()

        def ask(answer: bytes, *options: str) -> tuple[int, str, str]:
            answers.append(answer)
            done = run_aliquot("status", *options)
            return done.returncode, done.stdout, done.stderr

        yield ask
        answers.clear()
        with socket.create_connection(server.getsockname()) as last:
            last.sendall(b"end")
        thread.join()


def in_json(told: object) -> bytes:
    body = json.dumps(told).encode()
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_the_devices_and_kernels_of_the_gateway_are_shown(asked: Asked) -> None:
    known = kernel("work/train.ipynb", "opportunistic", part(0, COMPUTE))
    snapshot = StatusSnapshot("", node=NodeView(read_status(node(known))))
    code, shown, said = asked(in_json(status_report(snapshot, User("", "admin"))))
    assert (code, said) == (0, "")
    assert "node n1 · NVIDIA driver · from the gateway http://127.0.0.1" in shown
    row = next(line for line in shown.splitlines() if "train.ipynb" in line)
    want = "work/train.ipynb id-work/ ada 0.25 GPU low 4.0 GiB 1.0 GiB 4.00 s 12 % of 25 % – on GPU"
    assert " ".join(row.split()) == want
    assert "gpu0" in shown
    assert "No kernel is queued." in shown
    code, shown, said = asked(in_json(status_report(snapshot, User("", "admin"))), "--json")
    told = json.loads(shown)
    assert (code, said, told["source"]["kind"]) == (0, "", "gateway")
    assert told["source"]["url"].startswith("http://127.0.0.1:")
    assert [one["label"] for one in told["kernels"]] == ["work/train.ipynb"]


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 1000\r\n\r\n{",  # the gateway was killed
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"who is there\r\n\r\n",
        in_json(None),
        in_json({}),
        in_json({"node": {"name": "n"}, "kernels": [1]}),
    ],
)
def test_an_answer_that_cannot_be_read_is_one_line_of_error(asked: Asked, answer: bytes) -> None:
    code, shown, said = asked(answer)
    assert (code, shown, said.count("\n")) == (1, "", 1), said
    assert "gateway" in said
    assert "127.0.0.1" in said
    assert asked(answer, "--json")[0] == 1


def test_words_of_a_gateway_never_control_the_terminal(asked: Asked) -> None:
    report: dict[str, Any] = status_report(StatusSnapshot("", node=NodeView()), User("", "admin"))
    report["node"]["message"] = "no\x1b[2J"
    code, shown, _ = asked(in_json(report))
    assert (code, "no\ufffd[2J" in shown, "\x1b" in shown) == (0, True, False)
    body = json.dumps({"message": "no\x1b[2J"}).encode()
    code, _, said = asked(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (code, "\x1b" in said) == (1, False), said


def test_beside_the_agents_own_view_a_named_gateway_that_refuses_is_told(
    asked: Asked, an_agent: Any, an_environment: dict[str, str], run_aliquot: Any
) -> None:
    del an_environment["JUPYTER_GATEWAY_AUTH_TOKEN"]
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n{}"
    code, shown, said = asked(refusal)
    assert (code, said, "Aliquot Software GPU" in shown) == (0, "", True)
    words = " ".join(shown.split())
    assert "refuses a request without a token (403), and JUPYTER_GATEWAY_AUTH_TOKEN is not set" in words
    told = json.loads(run_aliquot("status", "--json").stdout)
    assert (told["queue"], "is not set" in told["gateway_problem"]) == (None, True)


def test_a_gateway_of_another_machine_is_the_one_source_also_where_an_agent_runs(
    asked: Asked, an_agent: Any, a_runtime_folder: Path
) -> None:
    known = kernel("work/train.ipynb", "opportunistic", part(0, COMPUTE))
    report = in_json(status_report(StatusSnapshot("", node=NodeView(read_status(node(known)))), User("", "admin")))
    code, shown, said = asked(report)
    assert (code, said, "train.ipynb" in shown, "Aliquot Software GPU" in shown) == (0, "", True, False)
    assert "node n1 · NVIDIA driver · from the gateway http://127.0.0.1" in shown
    assert f"aliquot status --runtime-dir {a_runtime_folder} shows it" in shown
    told = json.loads(asked(report, "--json")[1])
    assert (told["source"]["kind"], told["node"]["name"], "queue_position" in told["kernels"][0]) == (
        "gateway",
        "n1",
        True,
    )
    code, shown, _ = asked(report, "--runtime-dir", str(a_runtime_folder))
    assert (code, "train.ipynb" in shown, "from the node agent of this machine" in shown) == (0, False, True)


def test_a_gateway_of_this_machine_adds_to_the_agents_view(asked: Asked, an_agent: Any, a_runtime_folder: Path) -> None:
    here = read_status(query("status", runtime_dir=a_runtime_folder))
    report = in_json(status_report(StatusSnapshot("", node=NodeView(here)), User("", "admin")))
    code, shown, said = asked(report)
    assert (code, said) == (0, "")
    assert "from the node agent of this machine" in shown
    assert "No kernel is queued." in shown
    told = json.loads(asked(report, "--json")[1])
    assert (told["source"], told["queue"]) == ({"kind": "agent", "url": None}, [])


def test_a_machine_of_the_same_name_with_other_gpus_is_another_machine(
    asked: Asked, an_agent: Any, a_runtime_folder: Path
) -> None:
    here = query("status", runtime_dir=a_runtime_folder)
    there = read_status({**here, "devices": [{**here["devices"][0], "uuid": "GPU-of-another-machine"}]})
    report = in_json(status_report(StatusSnapshot("", node=NodeView(there)), User("", "admin")))
    assert "from the gateway http://127.0.0.1" in asked(report)[1]


def test_a_gateway_of_this_machine_that_lost_its_agent_leaves_the_agents_view(asked: Asked, an_agent: Any) -> None:
    """Its report names no node, and has no devices and no kernels."""
    report = in_json(status_report(StatusSnapshot("", node=NodeView(problems=("no agent",))), User("", "admin")))
    code, shown, said = asked(report)
    assert (code, said, "Aliquot Software GPU" in shown, "no agent" in shown) == (0, "", True, True)
    told = json.loads(asked(report, "--json")[1])
    assert (told["source"], told["message"], len(told["devices"])) == ({"kind": "agent", "url": None}, "no agent", 1)
