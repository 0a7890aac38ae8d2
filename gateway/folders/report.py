"""REST reports of shared folders. Pure. Only administrators get the host's path and the users."""

from __future__ import annotations

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.reports.status import Folder

from .registry import Folders, ListedFolder
from .shared_folder import HOME, FolderSettings


def folder_reports(folders: Folders, who: User) -> list[Folder]:
    """Return the folders of a user's kernels.

    An administrator gets all shared folders and their own home.
    """
    home = [_home_report(folders.settings, who)] if folders.settings.home else []
    listed = [folder_report(listed, who) for listed in folders.all()]
    return [*home, *(report for report in listed if who.is_admin or report["mine"])]


def folder_report(listed: ListedFolder, who: User) -> Folder:
    """Return one shared folder, as the user *who* may see it."""
    folder = listed.folder
    return {
        "name": folder.name,
        "kind": "shared",
        "target": folder.target,
        "read_only": folder.read_only,
        "mine": listed.problem is None and folder.audience.includes(who),
        "origin": "configuration" if listed.is_configured else "request",
        "source": folder.source if who.is_admin else None,
        "users": sorted(folder.audience.users) if who.is_admin else None,
        "teams": sorted(folder.audience.teams) if who.is_admin else None,
        "problem": listed.problem,
    }


def _home_report(settings: FolderSettings, who: User) -> Folder:
    return {
        "name": HOME,
        "kind": "home",
        "target": settings.home_target,
        "read_only": False,
        "mine": True,
        "origin": "configuration",
        "source": settings.home if who.is_admin else None,
        "users": None,
        "teams": None,
        "problem": None,
    }
