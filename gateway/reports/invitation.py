"""The reports of users' invitations to folders of theirs. See api/openapi.yaml."""

from __future__ import annotations

from typing import TypedDict


class Invitation(TypedDict):
    """One folder of a user, and the user or team that is invited to it."""

    id: str
    owner: str
    name: str
    kind: str
    invited: str
    access: str
    since: str
    until: str | None
    target: str
    path: str | None
    source: str | None
    answer: str | None
    accepted: list[str] | None
    problem: str | None


class OpenInvitation(TypedDict):
    """An invitation that the user of the request has not answered."""

    id: str
    owner: str
    name: str
    access: str
    since: str


class Invitations(TypedDict):
    """The answer of GET /aliquot/api/v1/invitations."""

    invitations: list[Invitation]
    refusal: str | None
