"""Follow the README on bare systems, as a newcomer would: ``make readme-check``.

For each system it installs the packages that the README names, clones the last commit, runs `make
demo` to its table, and installs Aliquot into an environment of its own, beside JupyterLab. It needs
root, mmdebstrap, the archives of Debian and Ubuntu, and the package index.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(place for place in sys.path if Path(place or ".").resolve() != HERE)]

from machines.systems import SYSTEMS, system  # noqa: E402
from machines.trial import try_readme  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="machines", description=__doc__.splitlines()[0])
    suites = [one.suite for one in SYSTEMS]
    parser.add_argument("--suite", action="append", choices=suites, help="only this release; may be repeated")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("machines: only root can make a machine of namespaces. Run it as root", file=sys.stderr)
        return 1
    problems = 0
    for suite in arguments.suite or suites:
        row = try_readme(system(suite))
        problems += bool(row.problem)
        print(f"{row.system:<14} {'NO' if row.problem else 'ok':<3} {row.problem or row.found}", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
