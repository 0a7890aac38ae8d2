"""Settings count in each file that Jupyter reads: the server's, Aliquot's, and that of the application that starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# Prints the settings by which a JupyterLab with the extension works, without starting it.
PROGRAM = """
import json
from jupyter_aliquot.gateway.cli.commands.servers import lab_application
server = lab_application().initialize_server(
    argv=["--no-browser", "--port=0", "--allow-root", "--ServerApp.port_retries=50"]
)
apps = [app for apps in server.extension_manager.extension_apps.values() for app in apps]
[settings] = [app.configuration for app in apps if hasattr(app, "configuration")]
print(json.dumps([settings.queue_timeout_seconds, settings.status_refresh_seconds, settings.gateway_name]))
"""


def test_settings_of_every_configuration_file_are_in_force(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "jupyter_server_config.py").write_text("c.Aliquot.gateway_name = 'here'\n")
    (config / "jupyter_lab_config.py").write_text("c.Aliquot.queue_timeout_seconds = 77\n")
    (config / "jupyter_aliquot_config.py").write_text("c.Aliquot.status_refresh_seconds = 3.5\n")
    places = {"JUPYTER_CONFIG_DIR": config, "JUPYTER_DATA_DIR": tmp_path / "data", "JUPYTER_RUNTIME_DIR": tmp_path}
    env = {**os.environ, **{name: str(place) for name, place in places.items()}}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [77.0, 3.5, "here"]
