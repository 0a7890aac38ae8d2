# This machine's JupyterHub, for its accounts: https://jupyterhub.readthedocs.io/en/stable/reference/config-reference.html
# Written once by `aliquot install-service --hub`. From then on it is yours.
from jupyter_aliquot.gateway.hub import configure

c = get_config()  # noqa: F821  (Jupyter gives it)

c.JupyterHub.bind_url = "http://:8000"
c.Authenticator.allow_all = True  # each account of this machine that may log in, with its password
c.Authenticator.admin_users = set()  # {"ada"}
c.Spawner.default_url = "/lab"

configure(
    c,
    user_limit_gpus=1,  # what one user may hold; team_limits={"vision": 2}: the members of a group together
    gateway_user="aliquot",
    run_kernels_as="owner",  # each kernel has its user's account, files and groups
    start_relay_host=False,  # aliquot-relay.service is one
    url="http://127.0.0.1:890",  # below 1024: no other account listens there while the gateway is restarted
    gateway_environment={"ALIQUOT_RUNTIME_DIR": "/run/aliquot"},
    gateway_options=["--Aliquot.driver=nvidia", "--Aliquot.start_agent=False"],
)
