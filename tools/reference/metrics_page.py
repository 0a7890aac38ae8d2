"""Make docs/reference/metrics.md from the code that answers GET /aliquot/api/v1/metrics."""

from __future__ import annotations

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.status.prometheus import metrics_of
from jupyter_aliquot.gateway.status.report import StatusSnapshot, status_report

from .tables import GENERATED, cell, code, table

_HEAD = f"""\
# Metrics

{GENERATED}

`GET /aliquot/api/v1/metrics` answers them to administrators, as Prometheus' text
([monitor the GPUs](../how-to/monitor.md)). The label `owner` is a kernel's user, `uuid` a device's. A
figure without a measurement has no sample. Jupyter's own metrics stay at `/metrics`.
"""


def metrics_page() -> str:
    """Return the whole page. An empty report has each metric, without samples."""
    snapshot = StatusSnapshot("")
    families = metrics_of(status_report(snapshot, User("", "admin"), ended=0), snapshot)
    rows = [
        (
            code(family.name + ("_total" if family.type == "counter" else "")),
            family.type,
            # prometheus_client keeps the label names for add_metric, without a public name.
            ", ".join(code(label) for label in getattr(family, "_labelnames", ())),
            cell(family.documentation),
        )
        for family in families
    ]
    return "\n".join([_HEAD, *table(("metric", "type", "labels", "meaning"), sorted(rows))]) + "\n"
