"""The rules of shared folders: which host folder may be shared, and where a kernel may find it.

Pure.

``safe_open.py`` checks the folders on the disk, and that no link is on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jupyter_aliquot.provisioner.errors import RequestError

USER = "{user}"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

_USER_NAME = re.compile(r"\w[\w.@+ -]{0,99}(?<! )")
# Folders of the host's or the image's system: never shared, and never covered, whole or in part.
_SYSTEM = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
)
# Folders of an image or the engine: a target may lie only deeper below them.
_COVERED = ("/tmp", "/var", "/root")
_ONLY_BELOW = ("/", "/home", "/opt", "/mnt", "/media", "/srv")
_LONGEST_PATH, _LONGEST_PART = 4095, 255


def parts_of(path: str) -> tuple[str, ...]:
    """Return the names in a plain absolute path. Raises RequestError for every other text."""
    parts = path.split("/")[1:]
    is_odd = any(ord(letter) < 32 or ord(letter) == 127 or letter == ":" for letter in path)
    if path == "/":
        return ()
    if not path.startswith("/") or is_odd or not all(part not in ("", ".", "..") for part in parts):
        raise RequestError(
            f"The folder {path!r} is not a plain absolute path. Write it from / on, without '..', "
            "'.', '//', a '/' at the end, ':' and control characters"
        )
    try:
        too_long = len(path.encode()) > _LONGEST_PATH or any(len(part.encode()) > _LONGEST_PART for part in parts)
    except UnicodeEncodeError:
        raise RequestError(f"The folder {path!r} is not valid UTF-8. Use another name") from None
    if too_long:
        raise RequestError(
            f"The path of the folder {path[:40]!r}… is longer than the {_LONGEST_PATH} bytes allowed. Use a shorter one"
        )
    return tuple(parts)


def lies_in(path: str, folder: str) -> bool:
    """Return whether *path* is *folder* or lies below it. Both are plain absolute paths."""
    return path == folder or folder == "/" or path.startswith(f"{folder}/")


def overlap(one: str, other: str) -> bool:
    """Return whether one of two folders holds the other."""
    return lies_in(one, other) or lies_in(other, one)


def check_root(root: str) -> None:
    """Check a folder below which folders may be shared. Raises RequestError."""
    parts_of(root)
    if root == "/" or any(lies_in(root, system) for system in _SYSTEM):
        raise RequestError(f"The root {root!r} is a folder of the system. Choose a folder made for sharing")


def check_source(source: str, roots: Iterable[str], homes: str, private: Iterable[str]) -> None:
    """Check a host folder to be shared.

    *homes* is the folder of users' homes; empty if there is none.
    """
    parts_of(source)
    roots = tuple(roots)
    if not any(lies_in(source, root) for root in roots):
        known = ", ".join(map(repr, roots)) or "none, so nothing can be shared"
        raise RequestError(
            f"Requested to share {source!r}, but it lies in none of the configured roots ({known}). "
            "Choose a folder in one of them (c.SharedFolders.roots)"
        )
    if homes and lies_in(homes, source):
        raise RequestError(
            f"Requested to share {source!r}, but all users' homes lie in it ({homes}). Choose a folder beside them"
        )
    _check_private(f"Requested to share {source!r}", source, private)


def check_target(target: str, private: Iterable[str]) -> None:
    """Check where a kernel finds a folder.

    Raises RequestError for a path that its container needs itself.
    """
    parts_of(target)
    asked = f"Requested to show a folder at {target!r}"
    if not set("{}").isdisjoint(target):
        raise RequestError(
            f"{asked}, but that place is the same for all users, and nothing is filled in there. Use one without "
            "braces, such as /home/user"
        )
    if target in _ONLY_BELOW or any(lies_in(target, system) for system in (*_SYSTEM, *_COVERED)):
        raise RequestError(
            f"{asked}, but the system has a folder there. Choose another place, such as /home/user or /data/sets"
        )
    _check_private(asked, target, private)


def check_targets(targets: Iterable[tuple[str, str]]) -> None:
    """Check name and target of all folders: none may cover another. Raises RequestError."""
    seen: list[tuple[str, str]] = []
    for name, target in targets:
        for other, taken in seen:
            if overlap(target, taken):
                raise RequestError(
                    f"Requested the folder {name!r} at {target!r}, but {other!r} is at {taken!r}. Choose "
                    "targets of which none holds the other"
                )
        seen.append((name, target))


def check_home(template: str, roots: Iterable[str], private: Iterable[str]) -> None:
    """Check the template of users' homes. Raises RequestError."""
    parts = parts_of(template)
    # Only in the last part: the owner of a folder above could replace it.
    is_alone = set("{}").isdisjoint(template.replace(USER, "", 1))
    if len(parts) < 2 or USER not in parts[-1] or not is_alone:
        raise RequestError(
            f"The home {template!r} has no {USER} in its last part, has other braces, or has no "
            f"folder around it. Write it like /srv/homes/{USER}"
        )
    homes = template.rpartition("/")[0]
    if not any(lies_in(homes, root) for root in roots):
        raise RequestError(
            f"Requested the home {template!r}, but {homes or '/'!r} lies in none of the configured "
            "roots. Add it to c.SharedFolders.roots"
        )
    _check_private(f"Requested the home {template!r}", homes, private)


def check_user_root(template: str, roots: Iterable[str], private: Iterable[str]) -> None:
    """Check the template of the folders that users share from. Raises RequestError."""
    parts = parts_of(template)
    is_alone = template.count(USER) == 1 and set("{}").isdisjoint(template.replace(USER, "", 1))
    if len(parts) < 2 or USER in parts[0] or not is_alone:
        raise RequestError(
            f"The root {template!r} of users' own folders has not one {USER} below a folder, or has other braces. "
            f"Write it like /srv/homes/{USER} or /srv/homes/{USER}/public"
        )
    above = template.partition(USER)[0].rpartition("/")[0]
    if not any(lies_in(above, root) for root in roots):
        raise RequestError(
            f"Users may share from {template!r}, but {above!r} lies in none of the configured roots. Add it to "
            "c.SharedFolders.roots"
        )
    _check_private(f"Users may share from {template!r}", above, private)


def check_own(source: str, root: str | None, shown: str) -> None:
    """Check a folder that its user shares: it lies in *root*, and holds no settings. Raises RequestError.

    *shown* is its path for the error, which a user reads.
    """
    asked = f"Requested to share {shown!r}"
    if root is None or not lies_in(source, root) or source == root:
        raise RequestError(
            f"{asked}, but it is no folder below one that users of this server may share from. Choose a folder in "
            "your own files"
        )
    if any(part.startswith(".") for part in parts_of(source[len(root) :])):
        raise RequestError(f"{asked}, but hidden folders hold settings and keys. Choose a folder without a dot")


def home_of(template: str, user: str) -> str:
    """Return a user's home on the host.

    Raises RequestError for a name that is no name of a folder.
    """
    if not _USER_NAME.fullmatch(user):
        raise RequestError(
            f"Requested the home of {user!r}, but this user's name is not a name of a folder. Give "
            "this user a name of letters, digits and . _ @ + - (c.AliquotIdentityProvider.users)"
        )
    path = template.replace(USER, user)
    parts_of(path)
    return path


def seen_inside(folder: str, mounts: Iterable[tuple[str, str]]) -> str | None:
    """Return where a kernel finds this host folder, by its mounts as (source, target).

    None if it does not find it.
    """
    found = [(source, target) for source, target in mounts if lies_in(folder, source)]
    if not found:
        return None
    source, target = max(found, key=lambda mount: len(mount[0]))
    return target + folder[len(source) :]


def _check_private(asked: str, path: str, private: Iterable[str]) -> None:
    for folder in private:
        if overlap(path, folder):
            raise RequestError(f"{asked}, but Aliquot's own folder {folder!r} lies there. Choose another")
