"""The NVIDIA devices of this machine, as its bus knows them, with a driver or without one."""

from __future__ import annotations

from pathlib import Path

_BUS = Path("/sys/bus/pci/devices")
_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"


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
