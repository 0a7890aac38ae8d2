"""A JupyterHub whose users share GPUs, on one machine, to look at: `make hub` starts it in a folder of its own.

All servers and kernels run as the account that starts it, and everybody knows the password: it protects nobody from
anybody. docs/how-to/jupyterhub.md tells what a Hub for a team has in these places.
"""

import os
import sys
from pathlib import Path

from jupyter_aliquot.gateway.hub import configure

c = get_config()  # noqa: F821 (JupyterHub defines it)
folder = Path.cwd()
user_password, admin_password = (folder / "passwords").read_text().split()
root = ["--allow-root"] if os.geteuid() == 0 else []
roots_kernels = ["--Aliquot.allow_root_kernels=True"] if root else []

# ---- who is there: two teams, of one user each, and an administrator
c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = user_password
c.SharedPasswordAuthenticator.admin_password = admin_password
c.Authenticator.allowed_users = {"alice", "bob"}
c.Authenticator.admin_users = {"ada"}
c.JupyterHub.load_groups = {"vision": {"users": ["alice"]}, "speech": {"users": ["bob"]}}

# ---- where their servers run
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = f"{folder}/homes/{{username}}"
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = root
c.Spawner.default_url = "/lab"
# Installed programs take a while to start from a cold disk.
c.Spawner.start_timeout = c.Spawner.http_timeout = 180
c.Spawner.environment = {"JUPYTER_CONFIG_DIR": f"{folder}/config"}

# ---- the gateway, on the software GPU: it divides memory and time as on a real one, and computes on the CPU
configure(
    c,
    url=(folder / "gateway_url").read_text(),
    sizes=["none", "0.25", "0.5", "1", "0.25-low"],
    default_size="0.25",
    user_limit_gpus=1,
    user_limits={"bob": 0.5},
    team_limits={"vision": 0.75, "speech": 0.5},
    gateway_options=["--Aliquot.driver=softgpu", "--Aliquot.keep_kernels=never", *root, *roots_kernels],
    gateway_environment={
        "ALIQUOT_RUNTIME_DIR": f"{folder}/run",
        "JUPYTER_CONFIG_DIR": f"{folder}/config",
        "JUPYTER_DATA_DIR": f"{folder}/data",
        "JUPYTER_RUNTIME_DIR": f"{folder}/jupyter",
    },
)
