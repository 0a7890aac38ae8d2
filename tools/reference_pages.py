"""Write what is made from code and data: ``.venv/bin/python tools/reference_pages.py``.

That is pages of the reference, the client's synchronous face, the types of a kernel's report, and the
texts that translators need. A test compares each file with its source (tests/house/test_reference_pages.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import language_template  # noqa: E402
from reference.configuration_page import settings_page  # noqa: E402
from reference.decisions_page import decisions_page  # noqa: E402
from reference.drawings import drawings  # noqa: E402
from reference.error_page import error_page  # noqa: E402
from reference.event_page import event_page  # noqa: E402
from reference.figures_page import figures_page  # noqa: E402
from reference.gallery_page import gallery_page  # noqa: E402
from reference.header_page import header_page  # noqa: E402
from reference.kernel_types import kernel_types  # noqa: E402
from reference.metrics_page import metrics_page  # noqa: E402
from reference.sync_client import sync_client  # noqa: E402

from jupyter_aliquot.gateway.cli.reference import reference_page  # noqa: E402

PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/cli.md": reference_page,
    "docs/reference/configuration.md": settings_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/events.md": event_page,
    "docs/reference/protocol-header.md": header_page,
    "docs/reference/errors.md": error_page,
    "docs/results/figures.md": figures_page,
    "client/sync.py": sync_client,
    "gateway/reports/kernel.py": kernel_types,
    "docs/decisions/README.md": decisions_page,
    "docs/explanation/gallery.md": gallery_page,
    "labextension/locale/aliquot.pot": language_template.template,
    **drawings(),
}


def main() -> int:
    for name, page in PAGES.items():
        (ROOT / name).write_text(page())
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
