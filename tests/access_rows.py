"""The one table of paths and roles with their answers. Tests request its rows in this order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

ROLES = ("no token", "another user", "same team", "read share", "write share", "owner", "administrator")
# Placeholders of rows.
_NAMES = ("python3.gpu-0.25", "python3", "logo-64x64.png", "zoe")
Wanted = tuple[int, int, int, int, int, int, int]


@dataclass(frozen=True)
class Row:
    """A request, and the status that each of ROLES gets.

    {k}: the owner's kernel, {s}: the owner's session, {b}: the session of the user who asks, {n}:
    an id that does not exist.
    """

    method: str
    path: str
    want: Wanted
    body: Any = None

    def matches(self, path: str) -> bool:
        """Return whether this row is of that path, with other ids and names in it."""
        ours = self.path.partition("?")[0]
        for name in _NAMES:
            ours = ours.replace(name, "{n}")
        pattern = "[^/]+".join(re.escape(part) for part in re.split(r"\{[kbsn]\}", ours))
        return re.fullmatch("/" + pattern, path) is not None


# The levels: any user with a token, for any kernel; administrators; the levels of a kernel.
ALL: Wanted = (403, 200, 200, 200, 200, 200, 200)
ADMIN: Wanted = (403, 403, 403, 403, 403, 403, 200)
READ: Wanted = (403, 404, 404, 200, 200, 200, 200)
OWN: Wanted = (403, 404, 404, 403, 403, 200, 200)
SOCKET_READ: Wanted = (403, 404, 404, 101, 101, 101, 101)
MINE: Wanted = (403, 404, 404, 404, 404, 200, 200)


def write(status: int) -> Wanted:
    return (403, 404, 404, 403, status, status, status)


def own(owner: int, admin: int) -> Wanted:
    return (403, 404, 404, 403, 403, owner, admin)


_NOTEBOOK = {"path": "{who}", "type": "notebook", "kernel": {"id": "{k}"}}
_FOLDER = {"source": "/nowhere/at/all"}
_INVITATION = {"path": "~/project", "kind": "user", "invited": "zoe"}
_NO_INVITATION: Wanted = (403, 404, 404, 404, 404, 404, 404)
_K = "aliquot/api/v1/kernels/{k}"
# A browser without a login is led to it.
_ADMIN_PAGE: Wanted = (302, 403, 403, 403, 403, 403, 200)

TABLE = (
    #    method   path                      no token, other, team, read, write, owner, admin
    Row("GET", "api", (200, 200, 200, 200, 200, 200, 200)),
    Row("GET", "api/", (302, 302, 302, 302, 302, 302, 302)),
    Row("GET", "api/spec.yaml", (302, 200, 200, 200, 200, 200, 200)),
    Row("GET", "api/status", ALL),
    Row("GET", "api/me", ALL),
    Row("PATCH", "api/me", (403, 400, 400, 400, 400, 400, 400), {"name": "somebody else"}),
    Row("POST", "api/security/csp-report", (403, 200, 200, 200, 200, 200, 200), {}),
    Row("GET", "api/kernelspecs", ALL),
    Row("GET", "api/kernelspecs/python3.gpu-0.25", ALL),
    Row("GET", "kernelspecs/python3/logo-64x64.png", (302, 200, 200, 200, 200, 200, 200)),
    # Kernels, as Jupyter has them.
    Row("GET", "api/kernels", ALL),
    Row("POST", "api/kernels", (403, 409, 409, 201, 201, 201, 201), {"name": "python3", "kernel_id": "{k}"}),
    Row("GET", "api/kernels/{k}", READ),
    Row("WEBSOCKET", "api/kernels/{k}/channels", SOCKET_READ),
    Row("POST", "api/kernels/{k}/interrupt", write(204)),
    # Sessions belong to each user, those on a shared kernel too.
    Row("GET", "api/sessions", ALL),
    Row("POST", "api/sessions", (403, 409, 409, 201, 201, 201, 201), _NOTEBOOK),
    Row("GET", "api/sessions/{s}", MINE),
    Row("GET", "api/sessions/{n}", (403, 404, 404, 404, 404, 404, 404)),
    Row("PATCH", "api/sessions/{s}", MINE, {"name": "another name"}),
    Row("PATCH", "api/sessions/{b}", (403, 400, 400, 200, 200, 200, 200), {"kernel": {"id": "{k}"}}),
    Row("PATCH", "api/sessions/{b}", (403, 400, 400, 400, 400, 400, 400), {"kernel": {"id": "{n}"}}),
    # Aliquot's. The kernel has no GPU: users who may change it get that answer.
    Row("GET", "aliquot/api/v1/status", ALL),
    Row("GET", "aliquot/api/v1/sizes", ALL),
    Row("GET", "aliquot/api/v1/session-options?kernelspec=python3.gpu-0.25", ALL),
    Row("GET", "aliquot/api/v1/dry-run?gpus=0.25", ALL),
    Row("GET", "aliquot/api/v1/dry-run?gpus=0.25&replaces={k}", READ),
    Row("GET", "aliquot/api/v1/dry-run?gpus=0.25&kernel={k}", own(409, 409)),
    Row("GET", "aliquot/api/v1/dry-runs?size=gpu-0.25", ALL),
    Row("GET", "aliquot/api/v1/dry-runs?size=gpu-0.25&replaces={k}", READ),
    Row("GET", "aliquot/api/v1/dry-runs?size=gpu-0.25&kernel={k}", own(409, 409)),
    Row("GET", "aliquot/api/v1/kernels", ALL),
    Row("GET", "aliquot/api/v1/history", ALL),
    Row("GET", "aliquot/api/v1/usage", ALL),
    Row("WEBSOCKET", "aliquot/api/v1/events", (403, 101, 101, 101, 101, 101, 101)),
    Row("GET", "aliquot/api/v1/quota", ALL),
    Row("POST", "aliquot/api/v1/quota/reload", (403, 403, 403, 403, 403, 403, 409), {}),
    Row("GET", "aliquot/api/v1/queue", ALL),
    Row("GET", "aliquot/api/v1/folders", ALL),
    Row("PUT", "aliquot/api/v1/folders/zoe", (403, 403, 403, 403, 403, 403, 400), _FOLDER),
    Row("DELETE", "aliquot/api/v1/folders/zoe", (403, 403, 403, 403, 403, 403, 404)),
    Row("GET", "aliquot/api/v1/invitations", ALL),
    # No user may share folders on this server.
    Row("POST", "aliquot/api/v1/invitations", (403, 409, 409, 409, 409, 409, 409), _INVITATION),
    Row("DELETE", "aliquot/api/v1/invitations/{n}", _NO_INVITATION),
    Row("POST", "aliquot/api/v1/invitations/{n}/accept", _NO_INVITATION, {}),
    Row("POST", "aliquot/api/v1/invitations/{n}/decline", _NO_INVITATION, {}),
    Row("GET", "aliquot/api/v1/nodes", ALL),
    Row("GET", "aliquot/api/v1/nodes/zoe", (403, 403, 403, 403, 403, 403, 404)),
    Row("POST", "aliquot/api/v1/nodes/zoe/cordon", (403, 403, 403, 403, 403, 403, 404), {}),
    Row("POST", "aliquot/api/v1/nodes/zoe/uncordon", (403, 403, 403, 403, 403, 403, 404), {}),
    Row("POST", "aliquot/api/v1/nodes/zoe/drain", (403, 403, 403, 403, 403, 403, 404), {}),
    Row("GET", "aliquot/api/v1/moves", ADMIN),
    Row("POST", "aliquot/api/v1/moves", (403, 403, 403, 403, 403, 403, 409), {"digest": "0" * 12}),
    # By a token of agents alone, and no user has one.
    Row("WEBSOCKET", "aliquot/api/v1/agents", (403, 403, 403, 403, 403, 403, 403)),
    Row("GET", "aliquot/api/v1/holders", ADMIN),
    Row("GET", "aliquot/api/v1/metrics", ADMIN),
    Row("GET", "aliquot/admin", _ADMIN_PAGE),
    Row("GET", "aliquot/admin/admin.js", _ADMIN_PAGE),
    Row("GET", "aliquot/admin/admin.css", _ADMIN_PAGE),
    Row("GET", "aliquot/api/v1/openapi.json", ALL),
    Row("GET", _K, READ),
    Row("GET", f"{_K}/outputs", READ),
    Row("POST", f"{_K}/prefetch", write(409), {}),
    Row("POST", f"{_K}/restore", write(409), {}),
    Row("POST", f"{_K}/swap-out", own(409, 409), {}),
    Row("PATCH", _K, own(409, 409), {"priority": "low"}),
    Row("DELETE", f"{_K}/resize", own(404, 404)),
    Row("POST", f"{_K}/postpone-culling", own(204, 204), {}),
    Row("POST", f"{_K}/message", (403, 404, 404, 403, 403, 403, 204), {"text": "Please end it"}),
    Row("GET", f"{_K}/shares", OWN),
    Row("PUT", f"{_K}/shares/users/zoe", OWN, {"access": "read"}),
    Row("DELETE", f"{_K}/shares/users/zoe", own(200, 404)),
    # All other paths belong to administrators.
    Row("GET", "metrics", ADMIN),
    Row("GET", "api/contents", ADMIN),
    Row("POST", "api/contents", (403, 403, 403, 403, 403, 403, 201), {"type": "notebook"}),
    Row("GET", "api/terminals", ADMIN),
    Row("GET", "api/nbconvert", ADMIN),
    Row("GET", "api/config/notebook", ADMIN),
    Row("PATCH", "api/config/notebook", ADMIN, {"theme": "dark"}),
    Row("WEBSOCKET", "api/events/subscribe", (403, 403, 403, 403, 403, 403, 101)),
    # The last rows end their kernel and session: the owner does, and the administrator finds them
    # gone.
    Row("POST", "api/kernels/{k}/restart", write(200)),
    Row("DELETE", "api/sessions/{s}", (403, 404, 404, 404, 404, 204, 404)),
    Row("DELETE", "api/kernels/{k}", (403, 404, 404, 404, 404, 404, 404)),
)
