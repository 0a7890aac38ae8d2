"""The answers of the API double beside its objects: its version, and reviews, which no store keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"


@dataclass
class Reviews:
    """``tokens`` are the statuses of TokenReviews by token; others are unknown.

    ``denied`` are verbs and resources, with a subresource behind a slash, that the account may not.
    """

    version: str = "v1.36.2"
    tokens: Mapping[str, Object] = field(default_factory=dict)
    denied: set[tuple[str, str]] = field(default_factory=set)

    def answer(self, method: str, path: str, body: Any) -> Object | None:
        """Return the answer; None: the path is no review's."""
        if (method, path) == ("GET", "/version"):
            major, minor, *_ = self.version.removeprefix("v").split(".")
            return {"major": major, "minor": minor, "gitVersion": self.version, "platform": "linux/amd64"}
        if (method, path) == ("POST", _ACCESS):
            asked = body["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            return {**body, "status": {"allowed": (asked["verb"], resource) not in self.denied}}
        if (method, path) == ("POST", _TOKENS):
            unknown = {"authenticated": False, "error": "[invalid bearer token, token lookup failed]"}
            return {**body, "status": self.tokens.get(body["spec"]["token"], unknown)}
        return None
