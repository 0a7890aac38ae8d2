"""Run *.test.cjs on the sources, compiled into a folder of its own.

Needs Node and the installed node_modules.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.sizes.grammar import PATTERN

_REPOSITORY = Path(__file__).resolve().parents[2]
_TSC = _REPOSITORY / "node_modules" / ".bin" / "tsc"
_LABEXTENSION = _REPOSITORY / "labextension"
# All modules that are no widget and no plugin, and import none.
_SOURCES = _LABEXTENSION / "src"
_SHOWN = (_SOURCES / "plugins", _SOURCES / "widgets", _SOURCES / "activations.ts", _SOURCES / "index.ts")
_PURE = sorted(
    path for path in _SOURCES.rglob("*.ts") if not any(path == shown or shown in path.parents for shown in _SHOWN)
)
_SCRIPTS = sorted(Path(__file__).parent.glob("*.test.cjs"))


@pytest.fixture(scope="module")
def a_compiled_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not _TSC.exists():
        pytest.skip("node_modules is missing; run `jlpm install --immutable` to test the model")
    out = tmp_path_factory.mktemp("model")
    config = {
        "extends": str(_LABEXTENSION / "tsconfig.json"),
        "compilerOptions": {
            "module": "commonjs",
            "composite": False,
            "declaration": False,
            "incremental": False,
            # `make check` checks types, by the same compiler and with those of the gateway's
            # contract.
            "noCheck": True,
            "noResolve": True,
            "outDir": str(out),
            "rootDir": str(_LABEXTENSION / "src"),
        },
        "files": [*map(str, _PURE)],
    }
    (out / "tsconfig.json").write_text(json.dumps(config))
    done = subprocess.run([str(_TSC), "-p", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (out / "node_modules").symlink_to(_REPOSITORY / "node_modules")
    return out


def test_the_servers_pattern_for_sizes_is_one_that_the_browser_reads(a_compiled_model: Path) -> None:
    read = "const read = require(process.argv[1]).readName; const sizes = {sizes: [], pattern: process.argv[2]};"
    names = ["python3.gpu-0.3-6g-low", "a.b.GPU-2", "local.python3", "python3.gpu-0", "python3.gpu-0.5-0g"]
    script = f"{read} console.log(JSON.stringify({json.dumps(names)}.map(name => read(name, sizes))))"
    command = ["node", "-e", script, str(a_compiled_model / "sizes" / "sizes.js"), PATTERN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    low, plain, *others = json.loads(done.stdout)
    assert low == {"base": "python3", "asked": {"gpus": 0.3, "memoryGib": 6, "priority": "low"}}
    assert plain == {"base": "a.b", "asked": {"gpus": 2, "memoryGib": None, "priority": "normal"}}
    assert others == [None, None, None]


def test_model_keeps_its_promises(a_compiled_model: Path) -> None:
    done = subprocess.run(
        ["node", "--test", "--test-reporter=tap", *map(str, _SCRIPTS)],
        env={**os.environ, "ALIQUOT_COMPILED": str(a_compiled_model)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
