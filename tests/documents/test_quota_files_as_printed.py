"""The quota files that the documentation prints are read without a problem."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.teams.budgets import BUDGET_KEYS, BUDGET_PERIODS
from jupyter_aliquot.gateway.teams.reading import TEAM_KEYS, QuotaFileError, read_quotas

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "teams-and-quotas.md"
BUDGETS = PAGE.with_name("usage-and-budgets.md")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text() + BUDGETS.read_text(), re.DOTALL)


def test_the_page_prints_quota_files() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("block", BLOCKS)
def test_a_printed_quota_file_is_valid(block: str) -> None:
    read_quotas(block if "teams:" in block else f"{block}teams: {{}}\n", str(PAGE))


def test_the_error_that_the_page_prints_is_the_programs() -> None:
    first, path = BLOCKS[0].replace("    nominalQuota: 1.5", "    nominalquota: 1.5"), "/etc/aliquot/aliquot.yaml"
    with pytest.raises(QuotaFileError) as caught:
        read_quotas(first, path)
    assert str(caught.value) in PAGE.read_text()


def test_every_key_of_a_team_is_described() -> None:
    assert [key for key in TEAM_KEYS if f"`{key}`" not in PAGE.read_text()] == []


def test_every_key_of_a_budget_is_described() -> None:
    assert [key for key in (*BUDGET_KEYS, *BUDGET_PERIODS) if key not in BUDGETS.read_text()] == []
