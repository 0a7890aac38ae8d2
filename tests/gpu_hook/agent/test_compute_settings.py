"""The agent's compute options, and the choice of each controller by its name."""

from __future__ import annotations

import pytest

from jupyter_aliquot.gpu_hook.agent.compute.controllers import CONTROLLERS
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, DeviceSample, ProcessSample
from jupyter_aliquot.gpu_hook.agent.compute.settings import ComputeSettings
from jupyter_aliquot.gpu_hook.agent.settings import read_arguments


def test_what_is_asked_is_what_is_in_force() -> None:
    asked = "--compute-control none --compute-cap all --slowdown-target 5 --compute-floor 1% --compute-period 50"
    assert read_arguments(asked.split()).compute == ComputeSettings("none", "all", 0.05, 0.01, 50 * MILLISECOND)
    assert read_arguments([]).compute == ComputeSettings()


@pytest.mark.parametrize(
    ("option", "value", "want"),
    [
        ("--slowdown-target", "0", "0.1 to 50 percent"),
        ("--slowdown-target", "much", "0.1 to 50 percent"),
        ("--compute-floor", "nan", "0 to 50 percent"),
        ("--compute-period", "1", "5 to 1000 milliseconds"),
        ("--compute-control", "best", "measured"),
        ("--compute-control", "tgs", "measured"),
        ("--compute-control", "hami", "measured"),
        ("--compute-control", "quanta", "measured"),
        ("--compute-cap", "some", "opportunistic"),
    ],
)
def test_a_bad_value_is_refused_with_what_may_be_asked(
    option: str, value: str, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_arguments([option, value])
    said = capsys.readouterr().err
    assert want in said
    assert repr(value) in said


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_each_controller_orders_for_whoever_is_there(name: str) -> None:
    controller = CONTROLLERS[name](ComputeSettings(control=name))
    processes = (ProcessSample(1, "p", True, 50), ProcessSample(2, "h", False, 50))
    for step in range(1, 5):
        verdict = controller.step(DeviceSample(step * 20 * MILLISECOND, processes))
        assert set(verdict.orders) <= {1, 2}
        assert verdict.look_after > 0


@pytest.mark.parametrize(
    ("cap", "want"), [("none", (False, False)), ("opportunistic", (False, True)), ("all", (True, True))]
)
def test_a_cap_is_for_the_classes_that_it_names(cap: str, want: tuple[bool, bool]) -> None:
    settings = ComputeSettings(cap=cap)
    assert (settings.caps(is_production=True), settings.caps(is_production=False)) == want
