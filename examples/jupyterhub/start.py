"""Starts the Hub of this folder, says how to log in, and ends all of it at Ctrl-C: `make hub`.

Everything lies in one private folder below /tmp, which goes with it. --check tries what the text promises, and ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from check import check

HERE = Path(__file__).resolve().parent
PROXY = HERE.parents[1] / "build" / "hub-proxy" / "node_modules" / ".bin" / "configurable-http-proxy"
SERVER_ALONE = "jupyter_server.serverapp.ServerApp"
START_SECONDS = 180.0
STOP_SECONDS = 60.0
NOTE = "Everybody's: both teams find this folder in their home. Kernels reach it as shared/.\n"
TEXT = """
JupyterHub runs at {url}

  log in as  with the password                            team    GPUs that they may have
  alice      {user:43}  vision  1, the team 0.75
  bob        {user:43}  speech  0.5, the team 0.5
  ada        {admin:43}  -       1; an administrator, who sees everybody's kernels

What to try
  - As alice, take 0.25 GPU on the spawn page, open a notebook, and look at the panel "GPU kernels".
  - As bob, in a private window, ask for 1 GPU: the page says what bob may have.
  - Stop alice's server (File, Hub Control Panel) and start it again: her kernel and its variables are there.
  - Share a kernel with bob from the panel, and open it as bob.
  - The folder shared/ in each home is one folder.

On the software GPU; servers and kernels run as your account. Ctrl-C ends all of it, and removes {folder}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="of the Hub; another one if it is taken")
    parser.add_argument("--check", action="store_true", help="try it by itself, and end")
    options = parser.parse_args()
    if not PROXY.exists():
        print(f"hub: not found: {PROXY}; `make hub` installs it (it needs Node)", file=sys.stderr)
        return 1
    # SIGHUP: its terminal was closed. The Hub, in a session of its own, would go on.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="aq-hub-", dir="/tmp"))
    hub: subprocess.Popen[bytes] | None = None
    try:
        passwords = write_folder(folder)
        port = free_port(0 if options.check else options.port)
        url = f"http://127.0.0.1:{port}"
        # Nobody looks at the pages of a check; a server without JupyterLab starts sooner.
        hub = start(folder, port, {"JUPYTERHUB_SINGLEUSER_APP": SERVER_ALONE} if options.check else {})
        wait_until_it_answers(hub, url, folder)
        if options.check:
            return check(url, passwords[0])
        print(TEXT.format(url=url, user=passwords[0], admin=passwords[1], folder=folder), flush=True)
        hub.wait()
        print((folder / "log").read_text()[-2000:], file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nhub: ending all of it …", flush=True)
        return 0
    finally:
        # A second Ctrl-C must not leave half of it behind.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        stop(hub, folder)


def write_folder(folder: Path) -> tuple[str, str]:
    """The files that jupyterhub_config.py reads, and the homes with the shared folder in them; the passwords."""
    user, admin = secrets.token_urlsafe(12), secrets.token_urlsafe(32)
    (folder / "passwords").write_text(f"{user}\n{admin}\n")
    (folder / "gateway_url").write_text(f"http://127.0.0.1:{free_port(0)}")
    (folder / "shared").mkdir()
    (folder / "shared" / "README.txt").write_text(NOTE)
    (folder / "config").mkdir()
    (folder / "tmp").mkdir()
    for name in ("alice", "bob", "ada"):
        home = folder / "homes" / name
        home.mkdir(parents=True)
        (home / "shared").symlink_to(folder / "shared")
        shutil.copy(HERE.parent / "quickstart.ipynb", home)
    return user, admin


def start(folder: Path, port: int, more: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "jupyterhub", f"--config={HERE / 'jupyterhub_config.py'}"]
    command += [
        f"--JupyterHub.bind_url=http://127.0.0.1:{port}",
        f"--JupyterHub.hub_bind_url=http://127.0.0.1:{free_port(0)}",
        f"--ConfigurableHTTPProxy.api_url=http://127.0.0.1:{free_port(0)}",
        f"--ConfigurableHTTPProxy.command={PROXY}",
    ]
    # The folder in the environment is how stop() knows what belongs to this Hub.
    environment = {**os.environ, "TMPDIR": f"{folder}/tmp/", **more}
    with (folder / "log").open("wb") as log:
        # In a session of its own: Ctrl-C is ours to pass on, once.
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def wait_until_it_answers(hub: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    print(f"hub: starting at {url} …", flush=True)
    deadline = time.monotonic() + START_SECONDS
    while True:
        # The Hub listens first, and then waits for its gateway.
        if all(answers(f"{url}/{path}") for path in ("hub/api/", "services/aliquot/api")):
            return
        if hub.poll() is not None or time.monotonic() > deadline:
            print((folder / "log").read_text()[-4000:], file=sys.stderr)
            raise SystemExit("hub: it did not start; above is the end of its log")
        time.sleep(0.3)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)
    except OSError:
        return False
    return True


def stop(hub: subprocess.Popen[bytes] | None, folder: Path) -> None:
    """The Hub ends its servers, its gateway and its proxy; what is left after that is ended here."""
    if hub is not None and hub.poll() is None:
        hub.terminate()
        try:
            hub.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            hub.kill()
            hub.wait()
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 20
        for pid in processes_of(folder):
            end(pid, number)
        while processes_of(folder) and time.monotonic() < deadline:
            time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder: Path) -> list[int]:
    """Those whose environment names the folder: its node agent, and whatever a killed Hub left."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_ours = entry.name.isdigit() and f"{folder}/".encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if is_ours and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def end(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def free_port(wanted: int) -> int:
    """The wanted one, if nobody has it; else any."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("hub: no port is free on 127.0.0.1")


if __name__ == "__main__":
    sys.exit(main())
