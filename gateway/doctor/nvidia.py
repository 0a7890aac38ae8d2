"""The NVIDIA devices of this machine, as its bus knows them, and the driver's settings of each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus

from .runner import FAIL, OK, WARN, Finding

_BUS = Path("/sys/bus/pci/devices")
_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"
_CLOSED = {
    "exclusive": "its compute mode lets one process use it at a time: a second kernel gets no GPU",
    "prohibited": "its compute mode lets no process use it: kernels get no GPU",
}


def nvidia_devices(bus: Path = _BUS) -> list[str]:
    """Return the addresses of the GPUs on the bus. A device needs no driver to be here."""
    found = []
    for device in sorted(bus.glob("*")):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _VENDOR and kind.startswith(_DISPLAY_CLASS):
            found.append(device.name)
    return found


def driver_modes(devices: Iterable[DeviceStatus]) -> list[Finding]:
    """Check the compute mode of each device, and whether its driver stays while no program uses it."""
    findings = []
    for device in devices:
        if device.compute_mode in _CLOSED:
            told = f"gpu{device.index}: {_CLOSED[device.compute_mode]}"
            findings.append(Finding("compute mode", FAIL, told, f"sudo nvidia-smi -i {device.index} -c DEFAULT"))
        elif device.compute_mode:
            findings.append(Finding("compute mode", OK, f"gpu{device.index}: {device.compute_mode}"))
        if device.persistent is False:
            told = f"gpu{device.index}: off: the driver starts the GPU anew after each time without a program on it"
            remedy = f"sudo systemctl enable --now nvidia-persistenced; or sudo nvidia-smi -i {device.index} -pm 1"
            findings.append(Finding("persistence", WARN, told, remedy))
    return findings
