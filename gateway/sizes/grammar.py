"""The grammar of kernelspec names that request a size, and the functions that read and write it.

Pure.

``kernelspecs/manager.py`` offers the names to Jupyter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jupyter_aliquot.provisioner.errors import SizeNameError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request, WorkloadClass

GRAMMAR = "<base>.gpu-<gpus>[-<n>g][-low]"
NO_GPU = "none"  # instead of a size: the base itself, whatever size the request's variables name
STEP = GpuShare(1)
# The names that parse_size_name reads, as a pattern for other languages. JavaScript takes it as it
# is.
PATTERN = (
    r"^(?<kernelspec>(?:(?!\.[gG][pP][uU]-)[A-Za-z0-9._-])+)\.[gG][pP][uU]-"
    r"(?<gpus>(?!0+(?:\.0+)?(?:-|$))[0-9]{1,4}(?:\.[0-9]{1,2})?)"
    r"(?:-(?<memory_gib>(?!0+[gG])[0-9]{1,5})[gG])?(?<low>-[lL][oO][wW])?$"
)

_MARK = re.compile(r"\.gpu-", re.IGNORECASE)
_PLAIN = re.compile(rf"((?:(?!\.gpu-).)+)\.gpu-{NO_GPU}", re.IGNORECASE | re.DOTALL)
_LOW = "low"
_GIB = 1 << 30
_EXAMPLES = "such as python3.gpu-0.25, python3.gpu-2.5-low or python3.gpu-0.5-8g"
_SHARE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,2})?")
_FINE_SHARE = re.compile(r"[0-9]{1,4}\.[0-9]{3,}")
_MEMORY = re.compile(r"([0-9]{1,5})g")


@dataclass(frozen=True)
class SizedName:
    """A parsed kernelspec name: its base, and the size that it requests."""

    base: str
    request: Request


def parse_size_name(name: str, largest: GpuShare | None = None) -> SizedName | None:
    """Read ``python3.gpu-0.25``; None for a plain name.

    Raises SizeNameError for a size that is not valid.
    """
    marks = list(_MARK.finditer(name))
    if not marks:
        return None
    if len(marks) > 1 or marks[0].start() == 0:
        raise _refusal(name, "it needs one kernelspec's name before one '.gpu-'", largest)
    # Jupyter compares kernelspec names without case, so a size is read without it.
    return SizedName(name[: marks[0].start()], _read(name, name[marks[0].end() :].lower(), largest))


def parse_plain_name(name: str) -> str | None:
    """Return the base of ``python3.gpu-none``, which requests no GPU; None for every other name."""
    match = _PLAIN.fullmatch(name)
    return match.group(1) if match else None


def plain_name(base: str) -> str:
    """Return the name that requests *base* without a GPU: the inverse of `parse_plain_name`."""
    return f"{base}.gpu-{NO_GPU}"


def parse_size(size: str, largest: GpuShare | None = None) -> Request:
    """Read a size without its base, as an administrator writes a preset: ``0.25-low``."""
    return _read(size, size.lower(), largest)


def size_name(base: str, request: Request) -> str:
    """Return the name that requests *request* on *base*: the inverse of `parse_size_name`.

    Raises SizeNameError.
    """
    return f"{base}.{size_suffix(request)}"


def size_suffix(request: Request) -> str:
    """Return the part after the base and a dot: ``gpu-0.5-8g-low``.

    Raises SizeNameError for a size without a name.
    """
    parts = [str(request.gpus)]
    if request.memory_limit is not None:
        gib, rest = divmod(request.memory_limit, _GIB)
        if rest or not gib:
            raise SizeNameError(
                f"Requested a memory limit of {request.memory_limit} bytes, but a kernelspec name carries "
                "whole GiB. Use 1 GiB or more, without a rest"
            )
        parts.append(f"{gib}g")
    if request.workload_class is WorkloadClass.OPPORTUNISTIC:
        parts.append(_LOW)
    return f"gpu-{'-'.join(parts)}"


def resized_name(name: str, request: Request) -> str:
    """Return the name of the same kernelspec in the size of *request*.

    *name* itself if it names no size. A name has whole GiB. A memory limit between two of them gets
    the larger: a kernel that is started by the name has at least that memory.
    """
    try:
        sized = parse_size_name(name)
    except SizeNameError:
        return name
    if sized is None:
        return name
    limit = request.memory_limit
    whole = None if limit is None else Bytes(-(-limit // _GIB) * _GIB)
    wanted = Request(request.gpus, whole, request.workload_class)
    return name if sized.request == wanted else size_name(sized.base, wanted)


def largest_here(most: GpuShare, devices: int) -> GpuShare:
    """Return the most that one kernel can have by the rules, on a node of so many GPUs.

    0 if that is not known yet.
    """
    return min(most, GpuShare(100 * devices)) if devices else most


def describe_grammar(largest: GpuShare | None = None) -> str:
    """Return the grammar and the range allowed here, as one sentence for users."""
    upper = f"from {STEP} to {largest}" if largest is not None else f"of at least {STEP}"
    return f"A size is {GRAMMAR} with gpus {upper} in steps of {STEP}, n in GiB; {_EXAMPLES}"


def size_label(request: Request) -> str:
    """Return the text in a kernel picker: ``0.25 GPU · 8 GiB · low``."""
    parts = [f"{request.gpus} {'GPU' if request.gpus.hundredths <= 100 else 'GPUs'}"]
    if request.memory_limit is not None:
        parts.append(f"{request.memory_limit // _GIB} GiB")
    if request.workload_class is WorkloadClass.OPPORTUNISTIC:
        parts.append(_LOW)
    return " · ".join(parts)


def _read(name: str, size: str, largest: GpuShare | None) -> Request:
    gpus, *options = size.split("-")
    share = _read_share(name, gpus or size, largest)
    memory: Bytes | None = None
    if options and (match := _MEMORY.fullmatch(options[0])):
        options.pop(0)
        memory = Bytes(int(match.group(1)) * _GIB)
        if not memory:
            raise _refusal(name, "a memory limit is 1 GiB or more", largest)
    is_low = options == [_LOW]
    if options and not is_low:
        raise _refusal(name, f"'-{'-'.join(options)}' is no option (a memory limit comes before -low)", largest)
    return Request(share, memory, WorkloadClass.OPPORTUNISTIC if is_low else WorkloadClass.PRODUCTION)


def _read_share(name: str, text: str, largest: GpuShare | None) -> GpuShare:
    if text.startswith("-"):
        raise _refusal(name, f"{text!r} is negative or no number of GPUs", largest)
    if _FINE_SHARE.fullmatch(text):
        raise _refusal(name, f"{text} has more than two decimals", largest)
    if not _SHARE.fullmatch(text):
        raise _refusal(name, f"{text!r} is no number of GPUs", largest)
    share = GpuShare.parse(text)
    if share < STEP:
        raise _refusal(name, "a share of 0 GPUs is nothing to run on; take the plain kernelspec instead", largest)
    if largest is not None and share > largest:
        most = "1 GPU" if str(largest) == "1" else f"{largest} GPUs"
        raise _refusal(name, f"{share} is more than the {most} that may be asked for here", largest)
    return share


def _refusal(name: str, found: str, largest: GpuShare | None) -> SizeNameError:
    return SizeNameError(f"Requested {name!r}, but {found}. {describe_grammar(largest)}")
