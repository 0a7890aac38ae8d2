"""The test of each printed command, or the reason why it is not run.

The test runs it as printed, or a named test covers it.
"""

from __future__ import annotations

# Run as printed by test_commands_as_printed.py, in this order, next to a gateway that has a kernel
# of train.ipynb.
RUN = (
    ".venv/bin/aliquot status",
    ".venv/bin/aliquot sizes",
    ".venv/bin/aliquot doctor",
    "aliquot doctor",
    "aliquot doctor | grep actuator",
    "aliquot doctor | grep enforcer",
    "aliquot status",
    "aliquot status --json",
    "aliquot sizes",
    "aliquot agent --help",
    "aliquot history --range day",
    "aliquot usage",
    "aliquot usage --month 2026-11 --by team",
    "aliquot quota",
    "aliquot queue",
    "aliquot capacity --gpus 4 --gpu-memory 80GiB --host-memory 512GiB",
    "aliquot holders",
    'aliquot message train.ipynb "Please end it by six: the GPU is reserved for a course."',
    'curl -H "Authorization: token $TOKEN" "$SERVER/aliquot/api/v1/history?range=day&format=csv" > day.csv',
    'curl -H "Authorization: token $TOKEN" "$SERVER/aliquot/api/v1/usage?by=team&format=csv" > usage.csv',
    "aliquot resize train.ipynb 0.5 --memory 12GiB --priority low",
    'curl -X PATCH "$SERVER/aliquot/api/v1/kernels/$KERNEL" -H "Authorization: token $TOKEN" \\\n'
    """     -d '{"gpus": 0.5, "memory": "12GiB", "priority": "low"}'""",
    "aliquot share train.ipynb --user bob",
    "aliquot share train.ipynb --team vision --write",
    "aliquot share train.ipynb",
    "aliquot share train.ipynb --user bob --stop",
    'curl -H "Authorization: token $ADMIN_TOKEN" https://gpu.example.org:8890/aliquot/api/v1/metrics',
    "python -c 'import hashlib, secrets; t = secrets.token_urlsafe(32);"
    " print(t, hashlib.sha256(t.encode()).hexdigest())'",
    'echo "ALIQUOT_TOKEN=$(openssl rand -hex 32)" > .env && chmod 600 .env',
    "jupyter --data-dir",
    "jupyter labextension disable @jupyter-aliquot/labextension:picker",
    "jupyter labextension enable @jupyterlab/apputils-extension:sessionDialogs",
    "aliquot sizes --install",
    "aliquot sizes --install --user",
    "aliquot sizes --install --sys-prefix",
    "aliquot sizes --install 0.5-8g",
    "aliquot sizes --install python3.gpu-2.5-low --sys-prefix",
    "jupyter execute --kernel_name=python3.gpu-0.25 notebook.ipynb",
    ".venv/bin/jupyter execute --kernel_name=python3.gpu-0.25 notebook.ipynb",
    "jupyter execute --kernel_name=python3.gpu-0.25 --startup_timeout=120 notebook.ipynb",
    "papermill -k python3.gpu-0.5-8g in.ipynb out.ipynb",
    "papermill --kernel python3.gpu-0.5 --start-timeout 120 in.ipynb out.ipynb -p epochs 3",
    'export PATH="$PWD/.venv/bin:$PATH"',
    "pip install papermill",
    "pip install ipykernel",
    "pip install jupyter-console",
    "jupyter console --kernel python3.gpu-0.25",
    "make help",
    # The last command: its processes stay.
    'curl -H "Authorization: token $TOKEN" -d \'{"name": "python3.gpu-0.25"}\' http://localhost:8888/api/kernels',
)

# Run as printed until the agent reports its start.
RUN_AGENTS = (
    "aliquot agent",
    "aliquot agent --compute-actuators pacing",
)

# Run in a folder of their own, by a test each: they make a checkout, or empty one.
RUN_ALONE = (
    "git clone REPOSITORY aliquot && cd aliquot",
    "make clean",
)

# Run as one script, for each line needs the one before it.
RUN_TOGETHER = (
    "LINK=.venv/share/jupyter/labextensions/@jupyter-aliquot/labextension",
    'rm -rf "$LINK" && mkdir -p "$(dirname "$LINK")" && ln -s "$PWD/labextension/dist" "$LINK"',
)

# Servers that a user starts to stay. The program's application reads the options; an unknown one
# fails the test.
_SERVER = "jupyter_server.serverapp:ServerApp"
PARSED = {
    "jupyter lab --gateway-url=http://127.0.0.1:8890 --GatewayClient.auth_token=…": _SERVER,
    "jupyter lab --gateway-url=https://gpu-machine:8890 --GatewayClient.auth_token=TOKEN": _SERVER,
    "jupyter lab --GatewayClient.url=https://gpu-machine:8890 --GatewayClient.auth_token=TOKEN": _SERVER,
    "jupyter lab --gateway-url=https://gpu.example.org:8890 --GatewayClient.auth_token=THEIR_TOKEN": _SERVER,
    "aliquot lab --debug": _SERVER,
    "aliquot serve --debug": "jupyter_aliquot.gateway.serverapp.app:GatewayServerApp",
}

_COMPOSE = "tests/containers/deploy/test_compose.py::test_the_composed_services_run_a_cell_on_a_quarter_of_a_gpu"
_COMPOSE_READ = "tests/containers/deploy/test_compose.py::test_a_compose_tool_reads_the_file_as_these_tests_do"
_LAB = "tests/labextension/test_sized_kernels.py::test_launcher_offers_the_sizes"
_SERVE = "tests/gateway/cli/test_serve.py::test_it_serves_those_with_a_token"
_NODES = "tests/gateway/rest/test_node_cordons.py::test_the_commands_cordon_drain_and_uncordon"
_ONE_GPU = "tests/gateway/rest/test_node_cordons.py::test_one_gpu_is_cordoned_by_its_uuid"
_MOVES = "tests/system/test_moves.py::test_a_plan_is_shown_and_run_by_the_command"
_SMOKE = "tests/benchmarks/test_smoke.py::test_a_benchmark_has_a_smoke_run"
_SERVERS_SMOKE = "tests/benchmarks/test_smoke_of_servers.py::test_a_benchmark_of_servers_has_a_smoke_run"

_AS_PRINTED = "tests/documents/test_commands_as_printed.py::test_a_printed_command_works"
_BUNDLED = "tests/gpu_hook/test_gpu_rehearsal.py::test_the_first_minutes_run_from_the_bundle_alone"

_SERVER_PAGE = "tests/documents/test_server_page.py::test_the_pages_commands_take_a_bare_server_to_a_hub_and_back"

# Another test does the same as the command.
COVERED = {
    ".venv/bin/python tools/reference_pages.py": (
        "tests/house/test_reference_pages.py::test_a_generated_page_is_what_its_source_says"
    ),
    "sudo apt-get install gcc make git nodejs npm python3-venv": _SERVER_PAGE,
    "sudo npm install --global configurable-http-proxy": _SERVER_PAGE,
    "sudo python3 -m venv /opt/aliquot": _SERVER_PAGE,
    "sudo python3 -m venv --clear /opt/aliquot": (
        "tests/documents/test_setup_needs.py::test_an_environment_whose_python_is_gone_is_made_anew"
    ),
    "echo 'PATH=$PATH:/opt/aliquot/bin' | sudo tee /etc/profile.d/aliquot.sh": _SERVER_PAGE,
    "sudo rm -f /etc/profile.d/aliquot.sh": _SERVER_PAGE,
    "sudo /opt/aliquot/bin/pip install '.[hub,lab]'": _SERVER_PAGE,
    "sudo /opt/aliquot/bin/pip install --upgrade '.[hub,lab]'": _SERVER_PAGE,
    "sudo /opt/aliquot/bin/aliquot install-service --hub": _SERVER_PAGE,
    "sudo /opt/aliquot/bin/aliquot install-service": (
        "tests/gateway/installation/test_install.py::test_without_a_hub_the_gateway_has_a_unit"
    ),
    "sudo systemctl restart jupyterhub": _SERVER_PAGE,
    "sudo /opt/aliquot/bin/aliquot doctor --hub": _SERVER_PAGE,
    "sudo /opt/aliquot/bin/aliquot install-service --hub --uninstall": _SERVER_PAGE,
    "python3 tools/gpu_bundle": _BUNDLED,
    'timeout -s INT 590 python3 build/gpu-bundle/run.py --gpu nvidia --out "$OUT" --budget 575': _BUNDLED,
    "python3 tools/gpu_first --gpu nvidia --out results --budget 575": _BUNDLED,
    "python3 tools/gpu_first --gpu nvidia --out results --only swap --only trace": _BUNDLED,
    "python3 tools/gpu_first --gpu nvidia --out results --only frameworks": (
        "tests/gpu_hook/test_gpu_rehearsal.py::test_the_matrix_of_frameworks_has_a_result_for_each"
    ),
    "aliquot simulate": "tests/gateway/cli/test_simulate_command.py::test_policies_are_compared",
    "aliquot simulate jobs.csv --cluster 4x8,2x4 --policy fifo,backfill,las --plot jobs.svg": (
        "tests/gateway/cli/test_simulate_command.py::test_policies_are_compared"
    ),
    "aliquot end train.ipynb": (
        "tests/gateway/rest/test_administration.py::test_the_commands_show_holders_write_to_an_owner_and_end_a_kernel"
    ),
    'aliquot cordon GPU-UUID --reason "Xid 79"': _ONE_GPU,
    "aliquot uncordon GPU-UUID": _ONE_GPU,
    "sudo systemctl restart aliquot-agent": _SERVER_PAGE,
    'aliquot cordon gpu-1 --reason "new driver on Friday"': _NODES,
    'aliquot drain gpu-1 --reason "new driver on Friday"': _NODES,
    "aliquot cordon NODE": _NODES,
    "aliquot node gpu-1": _NODES,
    "aliquot node": _NODES,
    "aliquot uncordon gpu-1": _NODES,
    "aliquot drain": _NODES,
    "aliquot defragment --size 1": _MOVES,
    "aliquot defragment --size 1 --apply 3f9c1b52a077": _MOVES,
    "aliquot quota reload": (
        "tests/gateway/rest/test_team_quotas.py::test_the_commands_show_quotas_and_queue_and_reload"
    ),
    "aliquot status --watch": "tests/gateway/cli/test_status_watch.py::test_it_ends_as_it_found_the_terminal",
    "make demo": "tests/system/test_demo.py::test_every_claim_of_the_demo_holds",
    "make hub": "tests/hub/test_example.py::test_the_example_holds_what_it_promises",
    "make lab": _LAB,
    "make docs": "tests/documents/test_site.py::test_each_link_of_the_site_leads_to_a_page_and_a_place",
    "make bench-gateway": _SERVERS_SMOKE,
    "make bench-hook": _SMOKE,
    "make bench-swap": _SMOKE,
    "make bench-swap ARGS=--smoke": _SMOKE,
    "aliquot lab": _LAB,
    ".venv/bin/aliquot lab --allow-root": _LAB,
    "aliquot serve": _SERVE,
    "aliquot serve --ip 0.0.0.0 --port 8890 --certfile CERT --keyfile KEY": (
        "tests/hub/test_tls.py::test_a_hub_and_its_gateway_work_over_tls_by_a_private_authority"
    ),
    "JUPYTERHUB_API_TOKEN='a long random text' JUPYTERHUB_API_URL=https://hub.example.org/hub/api \\\n"
    "JUPYTERHUB_SERVICE_NAME=aliquot JUPYTERHUB_SERVICE_PREFIX=/services/aliquot/ \\\n"
    "JUPYTERHUB_SERVICE_URL=https://0.0.0.0:8890 \\\n"
    "aliquot serve --hub --certfile=… --keyfile=… --Aliquot.user_limit_gpus=1": (
        "tests/hub/test_external.py::test_a_gateway_that_the_administrator_starts_serves_the_hubs_users"
    ),
    # NAME stands for an extension: the command with a real one is run as printed.
    "jupyter labextension disable NAME": _AS_PRINTED,
    "aliquot agent --cdi-dir /etc/cdi --library-dir /var/lib/aliquot/libraries": _COMPOSE,
    "python -m pip wheel --no-deps --wheel-dir deploy/wheels .": _COMPOSE,
    "python3 -m pip wheel --no-deps --wheel-dir dist .": _COMPOSE,
    "cd deploy": _COMPOSE,
    "docker compose --profile images build": _COMPOSE,
    "docker compose up -d": _COMPOSE,
    "install -d /srv/homes /etc/cdi /var/lib/aliquot": _COMPOSE,
    'curl -H "Authorization: token $(cut -d= -f2 .env)" http://127.0.0.1:8890/aliquot/api/v1/status': _COMPOSE,
    "docker compose -f compose.yaml -f compose.nvidia.yaml up -d": _COMPOSE_READ,
}

_INDEX = "installs packages of the index into an environment; make's set-up does it with the same extras"
_ENGINE = "shows or changes the machine's own container engine, which no test touches"
_NODE = "fetches Node packages or rewrites the committed bundle; tools/check-labextension builds and compares it"
_SYSTEMD = "needs systemd as process 1, or the account that the page makes"
_CLUSTER = "needs a Kubernetes cluster, which tests do not have"
_TLJH = "needs an installation of The Littlest JupyterHub, which needs systemd as process 1"
_SUITE = "runs tests or checks, among which is this one"
_MACHINE = "needs an NVIDIA GPU or its MPS daemon"
_REGISTRY = "needs a registry; tests/provisioner/containers/test_engine_troubles.py reads what it writes"

# Not run. The tests check their shell syntax, and the options that a parser knows.
LISTED = {
    "make test": _SUITE,
    "make check": _SUITE,
    "make soak": _SUITE,
    "make test-torch": _SUITE,
    "make test-binder": _SUITE,
    "make readme-check": "makes bare systems from the archives of Debian and Ubuntu, for minutes",
    ".venv/bin/pytest tests/gateway": _SUITE,
    ".venv/bin/pytest tests/gpu_hook/fuzz": _SUITE,
    "ALIQUOT_SOAK=20 .venv/bin/pytest -m soak tests/gpu_hook/fuzz": _SUITE,
    "pytest tests/labextension": _SUITE,
    "pytest tests/labextension -m 'not browser'": _SUITE,
    "make screenshot": "rewrites the pictures of the documents",
    "make labextension": _NODE,
    "cmake --build build/editable-*": "rewrites libraries that other tests have loaded; every set-up runs it",
    "jlpm install --immutable": _NODE,
    "jlpm build:prod": _NODE,
    "jlpm watch:src": _NODE,
    "jlpm watch:labextension": _NODE,
    "jlpm types": _NODE,
    "jlpm install --immutable && jlpm build:prod && git diff --exit-code labextension/dist": _NODE,
    "pip install '.[lab,demo]'": "fetches packages for a minute; make readme-check runs it on bare systems",
    "pip install '.[hub,lab]'": _INDEX,
    "pip install '.[mcp]'": _INDEX,
    "pip uninstall": "removes what runs the tests",
    "podman system service": _ENGINE,
    "docker info": _ENGINE,
    "docker ps --filter label=aliquot.dev/owner=alice": _ENGINE,
    "docker network create jupyterhub": _ENGINE,
    "docker network inspect jupyterhub": _ENGINE,
    "for class in production opportunistic; do\n"
    "  mkdir -p /run/aliquot-mps/$class/log\n"
    "  CUDA_MPS_PIPE_DIRECTORY=/run/aliquot-mps/$class CUDA_MPS_LOG_DIRECTORY=/run/aliquot-mps/$class/log"
    " nvidia-cuda-mps-control -d\n"
    "done": _MACHINE,
    "aliquot agent --compute-actuators pacing,mps --mps-folder /run/aliquot-mps": _MACHINE,
    "aliquot agent --enforcer driver": _MACHINE,
    "make test-gpu": _MACHINE,
    'make test-gpu ARGS="--out results --seconds 580"': _MACHINE,
    'make test-gpu ARGS="-k pytorch"': _MACHINE,
    "make bench-gpu": _MACHINE,
    'make bench-gpu ARGS="--bench compute_gpu"': _MACHINE,
    "sudo /opt/aliquot/bin/pip install --upgrade dist/jupyter_aliquot-*.whl": _SYSTEMD,
    "sudo systemctl stop aliquot-agent": _SYSTEMD,
    "journalctl --since -1h -u aliquot-agent -u aliquot-relay -u jupyterhub": _SYSTEMD,
    "df -h /run /var/lib/aliquot /var/spool/aliquot": "shows the machine's own disks, of an installation",
    "nvidia-smi": _MACHINE,
    "sudo nvidia-smi -i 0 --gpu-reset": _MACHINE,
    "sudo nvidia-smi -c DEFAULT": _MACHINE,
    "sudo nvidia-smi -mig 0": _MACHINE,
    "sudo systemctl enable --now nvidia-persistenced": _SYSTEMD,
    "sudo -H -u aliquot docker login registry.example": _REGISTRY,
    "sudo -H -u aliquot podman login --authfile /var/lib/aliquot/.docker/config.json registry.example": _REGISTRY,
    "systemctl restart aliquot-gateway": _SYSTEMD,
    "systemctl edit aliquot-agent": _SYSTEMD,
    "systemctl restart aliquot-agent": _SYSTEMD,
    "sudo /opt/tljh/hub/bin/pip install '.[hub,lab]'": _TLJH,
    "sudo /opt/tljh/user/bin/pip install '.[lab]'": _TLJH,
    "sudo /opt/tljh/user/bin/python -m ipykernel install --prefix=/opt/tljh/aliquot": _TLJH,
    "sudo /opt/tljh/hub/bin/aliquot install-service --hub": _TLJH,
    "sudo /opt/tljh/hub/bin/aliquot doctor --hub": _TLJH,
    "kubectl create namespace aliquot": _CLUSTER,
    'kubectl -n aliquot create secret generic aliquot-gateway --from-literal=token="$(openssl rand -hex 32)"': _CLUSTER,
    "kubectl apply -k deploy/kubernetes/softgpu": _CLUSTER,
    "kubectl -n aliquot exec deployment/aliquot-gateway -- aliquot doctor --cluster": _CLUSTER,
    "aliquot doctor --cluster": _CLUSTER,
    "sudo -u aliquot ALIQUOT_RUNTIME_DIR=/run/aliquot /opt/aliquot/bin/aliquot status": _SYSTEMD,
    "sudo -u aliquot ALIQUOT_RUNTIME_DIR=/run/aliquot /opt/aliquot/bin/aliquot status --watch": _SYSTEMD,
    "sudo -u aliquot ALIQUOT_RUNTIME_DIR=/run/aliquot /opt/aliquot/bin/aliquot doctor": _SYSTEMD,
}
