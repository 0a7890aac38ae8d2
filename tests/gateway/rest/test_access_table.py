"""Two users and an administrator on one server: every path of kernels and sessions, as one table."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from .conftest import Answer, Ask
from .test_contract import until

WHO = ("nobody", "bob", "alice", "ada")


@dataclass(frozen=True)
class Row:
    """A request, and the status that nobody, the other user, the owner and the administrator get."""

    method: str
    path: str
    want: tuple[int, int, int, int]
    body: Any = None


# {k}: alice's kernel, {s}: alice's session, {b}: the session that the asker has, {n}: an id that nothing has.
TABLE = (
    Row("GET", "api", (200, 200, 200, 200)),
    Row("GET", "api/status", (403, 200, 200, 200)),
    Row("GET", "api/me", (403, 200, 200, 200)),
    Row("GET", "api/kernelspecs", (403, 200, 200, 200)),
    Row("GET", "api/kernelspecs/python3.gpu-0.25", (403, 200, 200, 200)),
    Row("GET", "kernelspecs/python3/logo-64x64.png", (302, 200, 200, 200)),
    Row("GET", "api/kernels", (403, 200, 200, 200)),
    Row("POST", "api/kernels", (403, 409, 201, 201), {"name": "python3", "kernel_id": "{k}"}),
    Row("GET", "api/kernels/{k}", (403, 404, 200, 200)),
    Row("GET", "api/kernels/{n}", (403, 404, 404, 404)),
    Row("POST", "api/kernels/{k}/interrupt", (403, 404, 204, 204)),
    Row("POST", "api/kernels/{n}/interrupt", (403, 404, 404, 404)),
    Row("WEBSOCKET", "api/kernels/{k}/channels", (403, 404, 101, 101)),
    Row("WEBSOCKET", "api/kernels/{n}/channels", (403, 404, 404, 404)),
    Row("GET", "api/sessions", (403, 200, 200, 200)),
    Row("POST", "api/sessions", (403, 409, 201, 201), {"path": "{who}", "type": "notebook", "kernel": {"id": "{k}"}}),
    Row("GET", "api/sessions/{s}", (403, 404, 200, 200)),
    Row("GET", "api/sessions/{n}", (403, 404, 404, 404)),
    Row("PATCH", "api/sessions/{s}", (403, 404, 200, 200), {"name": "another name"}),
    Row("PATCH", "api/sessions/{b}", (403, 400, 200, 200), {"kernel": {"id": "{k}"}}),
    Row("PATCH", "api/sessions/{b}", (403, 400, 400, 400), {"kernel": {"id": "{n}"}}),
    Row("GET", "aliquot/api/status", (403, 200, 200, 200)),
    Row("GET", "aliquot/api/sizes", (403, 200, 200, 200)),
    Row("GET", "aliquot/api/kernels", (403, 200, 200, 200)),
    Row("GET", "aliquot/api/kernels/{n}", (403, 404, 404, 404)),
    Row("POST", "aliquot/api/kernels/{k}/keep", (403, 404, 204, 204), {}),
    Row("POST", "aliquot/api/kernels/{n}/keep", (403, 404, 404, 404), {}),
    # A plain kernel: its owner hears that it has no GPU, and others that there is none.
    Row("PATCH", "aliquot/api/kernels/{k}", (403, 404, 409, 409), {"class": "opportunistic"}),
    Row("PATCH", "aliquot/api/kernels/{n}", (403, 404, 404, 404), {"class": "opportunistic"}),
    Row("DELETE", "aliquot/api/kernels/{k}/resize", (403, 404, 404, 404)),
    Row("DELETE", "aliquot/api/kernels/{n}/resize", (403, 404, 404, 404)),
    Row("POST", "aliquot/api/kernels/{k}/swap-out", (403, 404, 409, 409), {}),
    Row("POST", "aliquot/api/kernels/{n}/swap-out", (403, 404, 404, 404), {}),
    Row("POST", "aliquot/api/kernels/{k}/wake", (403, 404, 409, 409), {}),
    Row("POST", "aliquot/api/kernels/{n}/wake", (403, 404, 404, 404), {}),
    Row("POST", "aliquot/api/kernels/{k}/hint", (403, 404, 409, 409), {}),
    Row("POST", "aliquot/api/kernels/{n}/hint", (403, 404, 404, 404), {}),
    Row("WEBSOCKET", "aliquot/api/events", (403, 101, 101, 101)),
    Row("GET", "aliquot/api/metrics", (403, 403, 403, 200)),
    Row("GET", "metrics", (403, 403, 403, 200)),
    Row("GET", "api/contents", (403, 403, 403, 200)),
    Row("POST", "api/contents", (403, 403, 403, 201), {"type": "notebook"}),
    Row("GET", "api/terminals", (403, 403, 403, 200)),
    Row("GET", "api/nbconvert", (403, 403, 403, 200)),
    Row("GET", "api/config/notebook", (403, 403, 403, 200)),
    Row("PATCH", "api/config/notebook", (403, 403, 403, 200), {"theme": "dark"}),
    Row("WEBSOCKET", "api/events/subscribe", (403, 403, 403, 101)),
    Row("PATCH", "api/me", (403, 400, 400, 400), {"name": "somebody else"}),
    Row("POST", "api/kernels/{k}/restart", (403, 404, 200, 200)),
    # The last two end what they ask for: bob first, then the owner; the administrator finds it gone.
    Row("DELETE", "api/sessions/{s}", (403, 404, 204, 404)),
    Row("DELETE", "api/kernels/{k}", (403, 404, 404, 404)),
)


@dataclass(frozen=True)
class Things:
    """The ids that rows name. ``sessions``: one for each who asks."""

    kernel: str
    session: str
    sessions: dict[str, str]
    nothing: str = "00000000-0000-0000-0000-000000000000"

    def fill(self, template: Any, who: str) -> Any:
        if isinstance(template, dict):
            return {name: self.fill(value, who) for name, value in template.items()}
        own = self.sessions.get(who, self.nothing)
        return template.format(k=self.kernel, s=self.session, b=own, n=self.nothing, who=f"of {who}")


async def start_session(ask: Ask, who: str, kernel: dict[str, str]) -> Any:
    body = {"path": f"{uuid.uuid4()}.ipynb", "type": "notebook", "kernel": kernel}
    answer: Answer = await ask(who, "POST", "api/sessions", body=body)
    assert answer.status == 201, answer
    return answer.json


async def make_things(ask: Ask) -> Things:
    """Alice's kernel with a session; and a session for everybody, of which ada's is bound to that kernel, too."""
    alices = await start_session(ask, "alice", {"name": "python3"})
    kernel = alices["kernel"]["id"]
    # The table is of kernels that run: one that is interrupted while it starts is another story.
    await until(
        lambda: ask("alice", "GET", "api/kernels", kernel), lambda found: found.json["execution_state"] == "idle"
    )
    bobs = await start_session(ask, "bob", {"name": "python3"})
    adas = await start_session(ask, "ada", {"id": kernel})
    second = await start_session(ask, "alice", {"id": kernel})
    return Things(kernel, alices["id"], {"bob": bobs["id"], "ada": adas["id"], "alice": second["id"]})


async def test_every_path_answers_everybody_as_the_table_says(ask: Ask) -> None:
    things = await make_things(ask)
    got, want = {}, {}
    for number, row in enumerate(TABLE):
        for who, status in zip(WHO, row.want, strict=True):
            name = f"{number} {row.method} {row.path} as {who}"
            path, body = things.fill(row.path, who), things.fill(row.body, who) if row.body else None
            got[name] = (await ask(who, row.method, path, body=body)).status
            want[name] = status
    assert {name: status for name, status in got.items() if status != want[name]} == {}
