"""Fixtures with kernelspecs on a disk of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager

WriteKernelSpec = Callable[..., Path]
Make = Callable[..., SizedKernelSpecManager]


@pytest.fixture
def kernels_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    folder.mkdir()
    return folder


@pytest.fixture
def write_kernelspec(kernels_folder: Path) -> WriteKernelSpec:
    def write(name: str, display_name: str = "", metadata: dict[str, Any] | None = None) -> Path:
        folder = kernels_folder / name
        folder.mkdir()
        (folder / "logo-64x64.png").write_bytes(b"a picture")
        spec = {
            "argv": ["run", name, "{connection_file}"],
            "display_name": display_name or name,
            "language": "any",
            "env": {"COLOUR": "blue"},
            "interrupt_mode": "message",
            "metadata": metadata or {},
        }
        (folder / "kernel.json").write_text(json.dumps(spec))
        return folder

    return write


@pytest.fixture
def make_manager(kernels_folder: Path) -> Make:
    def make(**knobs: Any) -> SizedKernelSpecManager:
        allowed = knobs.pop("allowed_kernelspecs", set())
        return SizedKernelSpecManager(
            config=Config({"Aliquot": knobs}),
            kernel_dirs=[str(kernels_folder)],
            ensure_native_kernel=False,
            allowed_kernelspecs=allowed,
        )

    return make


@pytest.fixture
def a_manager(write_kernelspec: WriteKernelSpec, make_manager: Make) -> SizedKernelSpecManager:
    """Return a manager with one kernelspec, `julia`, and the default presets."""
    write_kernelspec("julia", "Julia 1.11")
    return make_manager()
