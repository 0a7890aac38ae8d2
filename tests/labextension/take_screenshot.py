"""Take the documents' pictures of JupyterLab and Notebook 7, each in light and dark.

python tests/labextension/take_screenshot.py docs/images
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension import gallery, gallery_of_a_hub, gallery_of_many
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import CHROMIUM, CHROMIUM_ARGS, LabProcess
else:
    import gallery
    import gallery_of_a_hub
    import gallery_of_many
    from lab_page import LabPage
    from lab_process import CHROMIUM, CHROMIUM_ARGS, LabProcess


class ScreenshotError(RuntimeError):
    """No picture was taken; the message says why, and what to do."""


def take_pictures(images: Path) -> None:
    """Start the servers, play the scenes, save the pictures."""
    settings = {"@jupyter-aliquot/labextension:plugin": {"refreshInterval": 0.5}}
    with _a_browser() as new_page:
        with LabProcess(with_aliquot=True, settings=settings, options=gallery.SERVER_OPTIONS) as lab:
            gallery.play(LabPage(new_page()).open(lab.lab_url), lab.notebooks, images)
        gallery_of_many.play_two_users(new_page, images)
        gallery_of_many.play_notebook(new_page, images)
        gallery_of_a_hub.play_hub(new_page, images)


@contextlib.contextmanager
def _a_browser() -> Iterator[Callable[[], Page]]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise ScreenshotError("the package playwright is missing; run `make screenshot`, which installs it") from None
    if not CHROMIUM.exists():
        raise ScreenshotError(f"{CHROMIUM} is missing; install the package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), headless=True, args=CHROMIUM_ARGS)

        def new_page() -> Page:
            page = browser.new_context(viewport={"width": gallery.WIDTH, "height": gallery.HEIGHT}).new_page()
            page.set_default_timeout(60_000)
            return page

        yield new_page
        browser.close()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Take the documents' pictures.")
    parser.add_argument("folder", type=Path, help="the folder for the PNG files")
    options = parser.parse_args(arguments)
    try:
        take_pictures(options.folder)
    except ScreenshotError as error:
        print(f"no pictures: {error}", file=sys.stderr)
        return 1
    print(f"wrote {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
