"""The generated pages of the reference agree with their sources, and the index of errors is complete."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from reference.error_advice import ADVICE, INTERNAL  # noqa: E402
from reference.error_page import error_classes, error_page  # noqa: E402
from reference.event_page import SCHEMA, event_page  # noqa: E402
from reference.figures_page import figures_page  # noqa: E402
from reference.header_page import HEADERS, header_page  # noqa: E402
from reference.kernel_types import kernel_types  # noqa: E402
from reference.metrics_page import metrics_page  # noqa: E402
from reference_pages import PAGES  # noqa: E402

from jupyter_aliquot.provisioner import errors  # noqa: E402


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_its_source_says(name: str) -> None:
    assert (ROOT / name).read_text() == PAGES[name](), "run .venv/bin/python tools/reference_pages.py"


def test_a_field_that_the_contract_gives_a_kernel_is_in_its_types(tmp_path: Path) -> None:
    contract = (ROOT / "gateway/api/openapi.yaml").read_text()
    for before, field in (("host_memory", "of_the_agent"), ("resize", "of_the_gateway")):
        contract = contract.replace(
            f"\n        {before}:\n", f"\n        {field}: {{type: [integer, 'null']}}\n        {before}:\n", 1
        )
    (tmp_path / "openapi.yaml").write_text(contract)
    _, usage, kernel = re.split(r"class (?:Usage|Kernel)\(", kernel_types(tmp_path / "openapi.yaml"))
    assert "    of_the_agent: int | None\n" in usage
    assert "    of_the_gateway: int | None\n" in kernel


def test_each_error_class_is_in_the_index_or_is_met_by_no_user() -> None:
    """A new class needs a remedy in tools/reference/error_advice.py, or a reason why no user reads it."""
    public = {name for name in error_classes() if not name.startswith("_")}
    assert public == set(ADVICE) | set(INTERNAL)
    assert not set(ADVICE) & set(INTERNAL)
    tree = {one.__name__ for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)}
    assert tree <= set(ADVICE), "REST answers with the whole tree"
    headings = set(re.findall(r"^## (\w+)(?: \(\d+\))?$", error_page(), re.MULTILINE))
    assert set(ADVICE) <= headings


def test_the_index_has_exact_messages_and_the_status_of_each_class() -> None:
    page = error_page()
    assert "## NeverFitsError (409)" in page
    assert "## NoSuchSize (404)" in page, "a class has the status of the one it is made of"
    section = page.split("## UsageError", 1)[1].split("\n## ", 1)[0]
    assert section.count("\n- `") >= 10


def test_the_page_of_metrics_has_labels_and_names_as_prometheus_shows_them() -> None:
    page = metrics_page()
    labels = ("kernel", "owner", "kernelspec", "priority", "namespace", "pod", "direction")
    assert f"| `aliquot_kernel_swaps_total` | counter | {', '.join(f'`{label}`' for label in labels)} |" in page
    assert "| `aliquot_queue_length` | gauge |  |" in page


def test_the_page_of_events_has_each_field_of_the_schema() -> None:
    page, schema = event_page(), yaml.safe_load(SCHEMA.read_text())
    assert [name for name in schema["properties"] if f"| `{name}` |" not in page] == []
    assert "| `queued.expected_seconds` | number or null |" in page


def test_the_page_of_the_header_has_each_enum_struct_and_constant() -> None:
    page = header_page()
    for header in HEADERS:
        text = (ROOT / header).read_text()
        blocks = re.findall(r"^((?:enum|struct) \w+) \{", text, re.MULTILINE)
        assert [block for block in blocks if f"\n## {block}\n" not in page] == []
        defines = re.findall(r"^#define (\w+) .", text, re.MULTILINE)
        assert [name for name in defines if f"| `{name}` |" not in page] == []
    assert "| `ALIQUOT_CREDIT_GRANT = 66` |" in page
    assert "| `uint32_t share_hundredths` | of this device: 25 means 0.25 |" in page


def test_the_page_of_figures_has_each_bound_of_the_last_run_of_each_benchmark() -> None:
    page = figures_page()
    last = {path.stem[11:]: path for path in sorted((ROOT / "docs/results").glob("*.json"))}
    for name, path in last.items():
        section = page.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
        rows = [row for row in json.loads(path.read_text())["rows"] if row["want"]]
        assert section.count("\n| ") == len(rows) + 1, "one row a bound, and the head"
        later = {page.name for page in path.parent.glob(f"????-??-??-{name}.md") if page.name[:10] > path.name[:10]}
        assert {page for page in later if f"[{page}]({page})" not in section} == set()


def test_a_class_that_only_shares_an_errors_name_is_not_in_the_index() -> None:
    assert "A node that has no room" not in error_page()
    assert error_classes()["Refused"].summary.startswith("A refused request")
