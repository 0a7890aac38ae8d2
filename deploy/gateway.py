"""Configuration of the gateway in its container. compose.yaml says where things are, through the environment."""

import os

c = get_config()  # noqa: F821  (Jupyter gives it)

homes = os.environ["ALIQUOT_HOMES"]

c.ServerApp.ip = os.environ["ALIQUOT_IP"]
c.ServerApp.port = int(os.environ["ALIQUOT_PORT"])
c.ServerApp.port_retries = 0
c.ServerApp.allow_root = True
c.ServerApp.open_browser = False
c.ServerApp.root_dir = homes
c.IdentityProvider.token = os.environ["ALIQUOT_TOKEN"]

# The agent and the relay host are services of their own.
c.Aliquot.start_agent = False
# Named: a new container of the gateway finds the kernels of the one before.
c.Aliquot.gateway_name = "compose"
c.Aliquot.state_dir = os.environ["ALIQUOT_LIB"] + "/gateways"

# Kernels in containers are reached through their relays.
c.AliquotProvisioner.relay = True

c.KernelContainers.engine = "unix:///var/run/docker.sock"
c.KernelContainers.cdi_dirs = [os.environ["ALIQUOT_CDI"]]

c.ImageCatalogue.images = [
    {
        "name": "python",
        "image": os.environ["ALIQUOT_KERNEL_IMAGE"],
        "display_name": "Python 3",
        "description": "Python with ipykernel, in a container",
        "default_size": "0.25",
        "user": "1000:1000",
        "pull": "never",
    },
]

c.SharedFolders.roots = [homes]
c.SharedFolders.home = homes + "/{user}"
c.SharedFolders.make_homes = True

# Several people: name them, each with a token of their own; the one above is then not accepted any more.
# c.AliquotIdentityProvider.users = {"alice": {"token_hash": "…"}, "ada": {"token_hash": "…", "role": "admin"}}
