"""The gateway's own page of administrators, for those without JupyterLab: /aliquot/admin.

It is a frame for the script in ``static/``, which is built from labextension/ and asks the REST API
with the page's own login. The page runs no script but that one.
"""

# mypy: disable-error-code="no-untyped-call, misc"
# Jupyter Server's handlers carry no types.
from __future__ import annotations

from html import escape
from pathlib import Path

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError, authenticated

from jupyter_aliquot.gateway.auth.identity import user_of

STATIC = Path(__file__).parent / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>GPU Administration</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{base}aliquot/admin/admin.css">
<script src="{base}aliquot/admin/admin.js" defer></script>
</head>
<body>
<main class="aliquot-Admin">
<h1>GPU Administration</h1>
<noscript>This page needs scripts. The commands aliquot status, holders and queue show the same.</noscript>
<div id="aliquot-admin" data-base-url="{base}" data-xsrf="{xsrf}"></div>
</main>
</body>
</html>
"""


class _PageHandler(JupyterHandler):
    """The base of both handlers: administrators alone, a strict policy, and no activity."""

    auth_resource = "aliquot"
    _track_activity = False

    @property
    def content_security_policy(self) -> str:
        """Called by Jupyter Server for each answer."""
        return _POLICY

    def refuse_users(self) -> None:
        """Raise HTTPError 403 for a user who is no administrator."""
        if not user_of(self).is_admin:
            raise HTTPError(403, "The page of GPU administration is for administrators")


class AdminPageHandler(_PageHandler):
    """Answer the page, with the base URL of this server, which a Hub may have given a prefix."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.refuse_users()
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        xsrf = self.xsrf_token.decode()
        self.finish(_PAGE.format(base=escape(self.base_url), xsrf=escape(xsrf)))


class AdminScriptHandler(_PageHandler):
    """Answer the page's script."""

    name = "admin.js"
    kind = "text/javascript; charset=utf-8"

    @authenticated
    @authorized
    async def get(self) -> None:
        self.refuse_users()
        self.set_header("Content-Type", self.kind)
        self.set_header("Cache-Control", "no-cache")  # asked again each time, and answered 304 if it is the same
        self.finish((STATIC / self.name).read_bytes())


class AdminStyleHandler(AdminScriptHandler):
    """Answer the page's style sheet."""

    name = "admin.css"
    kind = "text/css; charset=utf-8"


PAGE_HANDLERS = (
    (r"/aliquot/admin", AdminPageHandler),
    (r"/aliquot/admin/admin\.js", AdminScriptHandler),
    (r"/aliquot/admin/admin\.css", AdminStyleHandler),
)
