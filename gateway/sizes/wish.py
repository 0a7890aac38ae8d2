"""The wishes in the body of a request for a kernel: its GPU models, and how long it will run. Pure.

They are beside the size, and no part of a kernelspec's name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_aliquot.provisioner.errors import RequestError

MODELS, SECONDS = "KERNEL_GPU_MODELS", "KERNEL_GPU_SECONDS"
# The key of a wish among the arguments of a start.
ARGUMENT = "gpu_wish"
MOST_MODELS = 4
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")


@dataclass(frozen=True)
class Wish:
    """The GPU models that a request takes, the preferred one first, and the seconds that it will run.

    No models: any. A model is a part of the device's name. ``seconds`` None: the user gave no estimate.
    """

    models: tuple[str, ...] = ()
    seconds: float | None = None

    @property
    def text(self) -> str:
        """The models for people: ``H200, else A100``."""
        return ", else ".join(self.models)


NO_WISH = Wish()


def read_wish(env: Mapping[str, str]) -> Wish:
    """Return the wish in these variables of a request. Raises RequestError for one that is not valid."""
    return Wish(read_models(env.get(MODELS, ""), f"{MODELS} of the request"), _seconds(env.get(SECONDS, "")))


def wish_arguments(wish: Wish) -> dict[str, Any]:
    """Return a wish as arguments of a start, which outlive the gateway."""
    if wish == NO_WISH:
        return {}
    return {ARGUMENT: {"models": list(wish.models), "seconds": wish.seconds}}


def wish_of(arguments: Mapping[str, Any]) -> Wish:
    """Return the wish in the arguments of a start; none where they have none."""
    found = arguments.get(ARGUMENT) or {}
    return Wish(tuple(found.get("models", ())), found.get("seconds"))


def is_of_model(device_name: str, model: str) -> bool:
    """Return whether a device is of a model: ``H200`` is ``NVIDIA H200``."""
    return model.casefold() in device_name.casefold()


def read_models(text: str, name: str) -> tuple[str, ...]:
    """Return the models of a text with commas between. *name* is its name in the RequestError."""
    models = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(models) > MOST_MODELS or not all(map(_MODEL.fullmatch, models)):
        raise RequestError(
            f"{name} is {text[:100]!r}. Name 1 to {MOST_MODELS} GPU models, the preferred one first, such as H200,A100"
        )
    return tuple(dict.fromkeys(models))


def _seconds(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise RequestError(
            f"{SECONDS} of the request is {text[:100]!r}. Give the seconds that the kernel will run, above 0"
        )
    return seconds
