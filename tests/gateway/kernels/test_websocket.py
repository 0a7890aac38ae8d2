from __future__ import annotations

import asyncio
import json
from typing import Any

from jupyter_client.session import Session


async def test_a_socket_opened_while_the_kernel_waits_runs_its_cell_later(
    a_gateway: Any, jp_fetch: Any, jp_ws_fetch: Any, until: Any
) -> None:
    holder = a_gateway.node.reserve_elsewhere("other", 100)
    body = json.dumps({"name": "python3.gpu-0.5"})
    answer = await jp_fetch("api", "kernels", method="POST", body=body, request_timeout=120)
    kernel_id = json.loads(answer.body)["id"]
    await until(lambda: a_gateway.kernels.kernel_state(kernel_id)[0] == "queued")
    opening = asyncio.ensure_future(jp_ws_fetch("api", "kernels", kernel_id, "channels"))
    await asyncio.wait({opening}, timeout=0.2)
    assert not opening.done(), "the socket waits with its kernel"
    a_gateway.node.release_elsewhere("other", holder)
    socket = await asyncio.wait_for(opening, 90)
    request = Session().msg("execute_request", {"code": "print(6 * 7)", "silent": False, "store_history": False})
    await socket.write_message(json.dumps({**request, "channel": "shell"}, default=str))
    text = ""
    while "42" not in text:
        message = json.loads(await asyncio.wait_for(socket.read_message(), 90))
        text = message["content"].get("text", "")
    socket.close()
    model = json.loads((await jp_fetch("api", "kernels", kernel_id)).body)
    assert model["execution_state"] in ("idle", "busy")
