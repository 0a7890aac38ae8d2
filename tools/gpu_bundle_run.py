"""Run the first minutes on a GPU from the folder that tools/gpu_bundle wrote.

It needs no installation and no network. It unpacks the wheels into the folder and passes its
arguments on to tools/gpu_first.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    if sys.version_info < (3, 11):
        raise SystemExit(f"this is Python {sys.version.split()[0]}; the bundle's packages need 3.11 or later")
    site = str(HERE / "site")
    for wheel in sorted((HERE / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    rest = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([site, *([rest] if rest else [])])
    for name in ("CUDA_INCLUDE", "NVML_INCLUDE"):
        os.environ.setdefault(name, str(HERE / "prebuilt" / "include"))
    first = str(HERE / "tree" / "tools" / "gpu_first")
    os.execv(sys.executable, [sys.executable, first, "--prebuilt", str(HERE / "prebuilt"), *sys.argv[1:]])


if __name__ == "__main__":
    main()
