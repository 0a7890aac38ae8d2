"""The dashboard and the alerts of deploy/monitoring name metrics and labels that a gateway has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from .conftest import Ask
from .fake_agent import FakeAgent, device, kernel
from .test_compute import CONTROL, HELD, with_compute
from .test_contract import until

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy/monitoring"
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text())
ALERTS = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
TARGETS = [(panel, target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
_METRIC = re.compile(r"aliquot_[a-z_]+")
_BY = re.compile(r"\bby \(([^)]*)\)")
_SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


async def samples_of(ask: Ask, agent: FakeAgent) -> dict[str, set[str]]:
    """Return the metrics of a gateway with two kernels, and the labels of each that has a sample."""
    agent.devices = [device(compute_control=CONTROL)]
    agent.kernels = [with_compute("k-1", "alice", HELD), kernel("k-2", "bob")]
    await agent.start()

    async def samples() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        text = (await ask("ada", "GET", "aliquot/api/v1/metrics")).body.decode()
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = {label for sample in family.samples for label in sample.labels}
        return found

    told: dict[str, set[str]] = await until(samples, lambda told: told.get("aliquot_kernel_slowdown_ratio"))
    return told


def _check(expression: str, shown: str, samples: dict[str, set[str]]) -> None:
    names = _METRIC.findall(expression)
    assert names, expression
    assert set(names) <= set(samples), f"{expression}: no gateway has it"
    labels = {label.strip() for group in _BY.findall(expression) for label in group.split(",")}
    labels |= set(_SHOWN.findall(shown))
    for name in names:
        if samples[name]:
            assert labels <= samples[name], f"{expression}: {name} has the labels {sorted(samples[name])}"


async def test_the_dashboard_shows_metrics_and_labels_that_exist(ask: Ask, an_agent: FakeAgent) -> None:
    samples = await samples_of(ask, an_agent)
    for _, target in TARGETS:
        _check(target["expr"], target["legendFormat"], samples)


async def test_alerts_are_about_metrics_and_labels_that_exist(ask: Ask, an_agent: FakeAgent) -> None:
    samples = await samples_of(ask, an_agent)
    for rule in ALERTS:
        _check(rule["expr"], "".join(rule["annotations"].values()), samples)


def test_panels_have_words_and_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_guide_has_what_to_do_for_each_alert_and_no_other() -> None:
    page = (ROOT / "docs/how-to/monitor.md").read_text()
    assert sorted(re.findall(r"^\| `(Aliquot\w+)` \|", page, re.MULTILINE)) == sorted(rule["alert"] for rule in ALERTS)


def test_prometheus_scrapes_the_path_of_the_metrics_and_reads_the_alerts() -> None:
    config: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert config["scrape_configs"][0]["metrics_path"] == "/aliquot/api/v1/metrics"
    assert config["scrape_configs"][0]["honor_labels"] is True, "a pod is a kernel's, not the gateway's"
    assert config["rule_files"] == ["alerts.yml"]
