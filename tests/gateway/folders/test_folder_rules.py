"""Rules for shared folders: which may be shared, where they appear, no path out of the roots."""

from __future__ import annotations

import os.path

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gateway.folders import rules
from jupyter_aliquot.provisioner.containers.plan import Mount
from jupyter_aliquot.provisioner.errors import RequestError

ROOTS = ("/srv/homes", "/srv/data")
HOMES = "/srv/homes"
PRIVATE = ("/srv/data/aliquot", "/var/lib/aliquot")

parts = st.sampled_from(["srv", "homes", "data", "etc", "home", "a", "..", ".", "", "a b", "a:b", "\n", "ü", "x" * 300])
paths = st.lists(parts, max_size=6).map(lambda names: "/" + "/".join(names)) | st.text(max_size=30)


@given(path=paths)
def test_a_source_that_is_taken_lies_in_a_root_however_it_is_written(path: str) -> None:
    try:
        rules.check_source(path, ROOTS, HOMES, PRIVATE)
    except RequestError:
        return
    assert os.path.normpath(path) == path
    assert any(os.path.commonpath([path, root]) == root for root in ROOTS)
    assert not any(os.path.commonpath([path, private]) in (path, private) for private in PRIVATE)
    assert path != HOMES
    Mount(path, "/data")


@given(path=paths)
def test_a_target_that_is_taken_covers_nothing_of_the_system(path: str) -> None:
    try:
        rules.check_target(path, PRIVATE)
    except RequestError:
        return
    assert os.path.normpath(path) == path
    assert path.count("/") > 1 or path not in ("/", "/home", "/srv")
    assert not any(path == f"/{name}" or path.startswith(f"/{name}/") for name in ("etc", "usr", "proc", "run", "tmp"))
    Mount("/srv/data/x", path)


@given(user=st.text(max_size=20) | paths | st.sampled_from(["..", ".", "a/../../b", "alice\0", "~", "-x", "a\n"]))
def test_a_home_is_one_folder_below_all_homes_whatever_its_user_is_called(user: str) -> None:
    try:
        home = rules.home_of("/srv/homes/{user}", user)
    except RequestError:
        return
    assert os.path.dirname(os.path.normpath(home)) == "/srv/homes"
    assert os.path.basename(home) == user


@given(st.lists(st.text(min_size=1, max_size=20).filter(lambda user: "{" not in user), unique=True, max_size=5))
def test_no_two_users_share_a_home(users: list[str]) -> None:
    homes = []
    for user in users:
        try:
            homes.append(rules.home_of("/srv/homes/u-{user}", user))
        except RequestError:
            continue
    assert len(set(homes)) == len(homes)


@pytest.mark.parametrize("user", ["alice", "Jörg", "bob@example.com", "a.b-c_d+e", "王", "7", "with space"])
def test_usual_names_have_homes(user: str) -> None:
    assert rules.home_of("/srv/homes/{user}", user) == f"/srv/homes/{user}"


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("srv/data", "not a plain absolute path"),
        ("/srv/data/../x", "not a plain absolute path"),
        ("/srv/data/", "not a plain absolute path"),
        ("/srv//data", "not a plain absolute path"),
        ("/srv/data/a:b", "not a plain absolute path"),
        ("/srv/data/" + "x" * 256, "longer"),
        ("/srv/data\udcff", "UTF-8"),
        ("/srv", "none of the configured roots"),
        ("/srv/data2", "none of the configured roots"),
        ("/etc", "none of the configured roots"),
        ("/srv/homes", "all users' homes"),
        ("/srv/data/aliquot/gateways", "Aliquot's own"),
        ("/srv/data", "Aliquot's own"),
    ],
)
def test_a_source_is_refused_with_the_reason(source: str, want: str) -> None:
    with pytest.raises(RequestError, match=want):
        rules.check_source(source, ROOTS, HOMES, PRIVATE)


@pytest.mark.parametrize(
    "target",
    ["/", "/etc", "/etc/x", "/usr/lib/x", "/proc/1", "/run/aliquot", "/tmp/x", "/home", "/opt", "/var/lib", "/lib64"],
)
def test_a_target_over_the_system_is_refused(target: str) -> None:
    with pytest.raises(RequestError, match="the system has a folder there"):
        rules.check_target(target, PRIVATE)


@pytest.mark.parametrize("target", ["/srv", "/aliquot", "/aliquot/run", "/aliquot/run/kernels"])
def test_a_target_over_our_own_folders_is_refused(target: str) -> None:
    with pytest.raises(RequestError):
        rules.check_target(target, ("/aliquot/run",))


@pytest.mark.parametrize("root", ["/", "/etc", "/proc/self", "/usr/share", "/run", "srv"])
def test_a_root_in_the_system_is_refused(root: str) -> None:
    with pytest.raises(RequestError):
        rules.check_root(root)


@pytest.mark.parametrize(
    "template",
    ["/srv/homes", "/srv/{user}/x", "/srv/homes/{user}-{user}", "{user}", "/other/{user}", "/srv/homes/{user}/"],
)
def test_a_template_of_homes_names_the_user_once_and_last_and_in_a_root(template: str) -> None:
    with pytest.raises(RequestError):
        rules.check_home(template, ROOTS, PRIVATE)


@pytest.mark.parametrize("template", ["/users/{user}", "/srv/{user}", "/srv/homes/u-{user}"])
def test_a_home_may_lie_in_a_root_of_any_name(template: str) -> None:
    rules.check_home(template, ["/users", "/srv"], ())


@pytest.mark.parametrize("template", ["/{user}", "/srv/{team}/{user}", "/srv/{user}}"])
def test_a_template_of_homes_lies_in_a_folder_and_has_no_other_braces(template: str) -> None:
    with pytest.raises(RequestError, match="Write it like"):
        rules.check_home(template, ["/srv"], ())


@pytest.mark.parametrize("other", ["/data", "/data/sets", "/data/sets/x"])
def test_two_folders_on_one_target_or_within_it_are_refused(other: str) -> None:
    with pytest.raises(RequestError, match="none holds the other"):
        rules.check_targets([("a", "/data/sets"), ("b", other)])


def test_folders_beside_each_other_are_fine() -> None:
    rules.check_targets([("a", "/data/sets"), ("b", "/data/sets2"), ("c", "/home/user")])


@pytest.mark.parametrize(
    ("folder", "want"),
    [
        ("/srv/homes/alice", "/home/user"),
        ("/srv/homes/alice/a/b", "/home/user/a/b"),
        ("/srv/homes/alice2", None),
        ("/srv/homes", None),
        ("/srv/homes/alice/shared/x", "/data/x"),
    ],
)
def test_a_folder_of_the_host_is_found_again_inside(folder: str, want: str | None) -> None:
    mounts = [("/srv/homes/alice", "/home/user"), ("/srv/homes/alice/shared", "/data")]
    assert rules.seen_inside(folder, mounts) == want
