"""The grammar of kernelspec names that request a size, and the functions that read and write it.

Pure.

``kernelspecs/manager.py`` offers the names to Jupyter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from jupyter_aliquot.provisioner.errors import SizeNameError
from jupyter_aliquot.provisioner.grants.codec import NO_FOLDER
from jupyter_aliquot.provisioner.resources import NO_HOST_PART, Bytes, GpuShare, HostPart, Request, WorkloadClass

_BARE = "<gpus>[-<n>g][-low]"
_BARE_WITH_HOST = "<gpus>[-<n>g][-<n>cpu][-<n>ram][-low][.with-<folder>…]"
GRAMMAR = f"<base>.gpu-{_BARE_WITH_HOST}"
NO_GPU = "none"  # instead of a size: the base itself, whatever size the request's variables name
STEP = GpuShare(1)
CPU_STEP = 0.5
# The names that parse_size_name reads, as a pattern for other languages. JavaScript takes it as it
# is.
PATTERN = (
    r"^(?<kernelspec>(?:(?!\.[gG][pP][uU]-)[A-Za-z0-9._-])+)\.[gG][pP][uU]-"
    r"(?<gpus>(?!0+(?:\.0+)?(?:-|$))[0-9]{1,4}(?:\.[0-9]{1,2})?)"
    r"(?:-(?<memory_gib>(?!0+[gG])[0-9]{1,5})[gG])?"
    r"(?:-(?<cpus>(?!0+(?:\.0)?[cC])[0-9]{1,4}(?:\.[05])?)[cC][pP][uU])?"
    r"(?:-(?<ram_gib>(?!0+[rR])[0-9]{1,5})[rR][aA][mM])?"
    r"(?<low>-[lL][oO][wW])?"
    r"(?<folders>(?:\.[wW][iI][tT][hH]-[A-Za-z0-9][A-Za-z0-9._-]*)?)$"
)

_MARK = re.compile(r"\.gpu-", re.IGNORECASE)
_PLAIN = re.compile(rf"((?:(?!\.gpu-).)+)\.gpu-{NO_GPU}", re.IGNORECASE | re.DOTALL)
_LOW = "low"
_GIB = 1 << 30
# The memory limit is one that the smallest of GPUs has.
_EXAMPLES = ((GpuShare(25), ""), (GpuShare(250), "-low"), (GpuShare(50), "-1g"))
_ONE_GPU = GpuShare(100)  # the most of an example where the range is not known
_EXAMPLE_BASE = "python3"
_SHORT_BASE = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SHARE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,2})?")
_FINE_SHARE = re.compile(r"[0-9]{1,4}\.[0-9]{3,}")
_MEMORY = re.compile(r"([0-9]{1,5})g")
_CPUS = re.compile(r"([0-9]{1,4}(?:\.[05])?)cpu")
_RAM = re.compile(r"([0-9]{1,5})ram")
_WITH = ".with-"
_FOLDER = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True)
class SizedName:
    """A parsed kernelspec name: its base, the size that it requests, and its part of the host."""

    base: str
    request: Request
    host: HostPart = NO_HOST_PART


@dataclass(frozen=True)
class _Asked:
    """A text that is read as a size, and the form that its place takes.

    ``before`` stands before each size there; ``largest`` is None where the range is not known.
    """

    text: str
    largest: GpuShare | None
    form: str
    before: str = ""

    def refusal(self, found: str) -> SizeNameError:
        """Return the error, whose examples this place accepts."""
        described = _describe(self.form, self.before, self.largest)
        return SizeNameError(f"Requested {self.text!r}, but {found}. {described}")


@lru_cache(maxsize=4096)
def base_of(kernel_name: str) -> str:
    """Return the base of a kernelspec's name: the name itself, if it is no size."""
    if (plain := parse_plain_name(kernel_name)) is not None:
        return plain
    try:
        sized = parse_size_name(kernel_name)
    except SizeNameError:
        return kernel_name
    return kernel_name if sized is None else sized.base


def parse_size_name(name: str, largest: GpuShare | None = None) -> SizedName | None:
    """Read ``python3.gpu-0.25``; None for a plain name.

    Raises SizeNameError for a size that is not valid.
    """
    marks = list(_MARK.finditer(name))
    if not marks:
        return None
    base = name[: marks[0].start()]
    asked = _Asked(name, largest, GRAMMAR, f"{base if _SHORT_BASE.fullmatch(base) else _EXAMPLE_BASE}.gpu-")
    if len(marks) > 1 or not base:
        raise asked.refusal("it needs one kernelspec's name before one '.gpu-'")
    # Jupyter compares kernelspec names without case, so a size is read without it.
    return SizedName(base, *_read(asked, name[marks[0].end() :].lower()))


def base_before_size(name: str) -> str:
    """Return the text before a size, also before one that is not valid; empty for none."""
    mark = _MARK.search(name)
    return name[: mark.start()] if mark else ""


def parse_plain_name(name: str) -> str | None:
    """Return the base of ``python3.gpu-none``, which requests no GPU; None for every other name."""
    match = _PLAIN.fullmatch(name)
    return match.group(1) if match else None


def plain_name(base: str) -> str:
    """Return the name that requests *base* without a GPU: the inverse of `parse_plain_name`."""
    return f"{base}.gpu-{NO_GPU}"


def parse_size(size: str, largest: GpuShare | None = None, before: str = "") -> Request:
    """Read a size without its base, as an administrator writes a preset: ``0.25-low``.

    ``before``: what stands before each size in such a place, for the errors' examples.

    Raises SizeNameError, also for one with CPUs or memory of the host.
    """
    asked = _Asked(size, largest, f"{before}{_BARE}", before)
    request, host = _read(asked, size.lower())
    if host:
        raise asked.refusal("it names CPUs or memory of the host, which a kernelspec's name alone carries")
    return request


def parse_whole_size(size: str, largest: GpuShare | None = None) -> tuple[Request, HostPart]:
    """Read a size without its base, and the part of the host that it names: ``0.25-4cpu-16ram``."""
    return _read(_Asked(size, largest, _BARE_WITH_HOST), size.lower())


def size_name(base: str, request: Request, host: HostPart = NO_HOST_PART) -> str:
    """Return the name that requests *request* on *base*: the inverse of `parse_size_name`.

    Raises SizeNameError.
    """
    return f"{base}.{size_suffix(request, host)}"


def size_suffix(request: Request, host: HostPart = NO_HOST_PART) -> str:
    """Return the part after the base and a dot: ``gpu-0.5-8g-4cpu-16ram-low.with-sets``.

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
    parts += _host_parts(host)
    if request.workload_class is WorkloadClass.OPPORTUNISTIC:
        parts.append(_LOW)
    return f"gpu-{'-'.join(parts)}{_folders_part(host)}"


def _folders_part(host: HostPart) -> str:
    """Return the chosen folders as a name has them. Raises SizeNameError for names that it cannot carry."""
    if host.folders is None:
        return ""
    for name in host.folders:
        if not carries_folder(name):
            raise SizeNameError(f"The folder {name!r} cannot be chosen in a kernelspec's name. Choose others")
    if len(set(host.folders)) < len(host.folders):
        raise SizeNameError(f"Requested the folders {', '.join(host.folders)}, one of them twice. Name each once")
    return "".join(f"{_WITH}{name}" for name in host.folders or (NO_FOLDER,))


def carries_folder(name: str) -> bool:
    """Return whether a kernelspec's name that has this folder gives it back: it may not read as a size."""
    has_mark = _WITH in f".{name}" or _MARK.search(name) is not None
    return name != NO_FOLDER and not has_mark and _FOLDER.fullmatch(name) is not None


def _host_parts(host: HostPart) -> list[str]:
    """Return a part of the host as a name has it. Raises SizeNameError for one that no name carries."""
    parts = []
    if host.cpus is not None:
        if host.cpus < CPU_STEP or host.cpus % CPU_STEP:
            raise SizeNameError(f"Requested {host.cpus:g} CPUs, but a kernelspec name carries steps of {CPU_STEP}")
        parts.append(f"{host.cpus:g}cpu")
    if host.memory is not None:
        gib, rest = divmod(host.memory, _GIB)
        if rest or not gib:
            raise SizeNameError(
                f"Requested {host.memory} bytes of host memory, but a kernelspec name carries whole GiB. Use 1 GiB or "
                "more, without a rest"
            )
        parts.append(f"{gib}ram")
    return parts


def resized_name(name: str, request: Request, fit: Callable[[HostPart], HostPart] = lambda host: host) -> str:
    """Return the name of the same kernelspec in the size of *request*.

    *fit* returns the part of the host that the new size may have, for the name's own.
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
    return name if sized.request == wanted else size_name(sized.base, wanted, fit(sized.host))


def largest_here(most: GpuShare, devices: int) -> GpuShare:
    """Return the most that one kernel can have by the rules, on a node of so many GPUs.

    0 if that is not known yet.
    """
    return min(most, GpuShare(100 * devices)) if devices else most


def describe_grammar(largest: GpuShare | None = None) -> str:
    """Return the grammar and the range allowed here, as one sentence for users."""
    return _describe(GRAMMAR, f"{_EXAMPLE_BASE}.gpu-", largest)


def example_sizes(largest: GpuShare | None = None) -> str:
    """Return sizes without a base that may be asked for: ``0.25, 2.5-low or 0.5-1g``."""
    return _examples("", largest)


def _examples(before: str, largest: GpuShare | None) -> str:
    most = _ONE_GPU if largest is None else largest
    *examples, last = [f"{before}{min(share, most)}{options}" for share, options in _EXAMPLES]
    return f"{', '.join(examples)} or {last}"


def _describe(form: str, before: str, largest: GpuShare | None) -> str:
    upper = f"from {STEP} to {largest}" if largest is not None else f"of at least {STEP}"
    units = "g and ram in GiB" if "ram" in form else "g in GiB"
    examples = _examples(before, largest)
    return f"A size is {form} with gpus {upper} in steps of {STEP}, {units}; such as {examples}"


def size_label(request: Request, host: HostPart = NO_HOST_PART) -> str:
    """Return the text in a kernel picker: ``0.25 GPU · 8 GiB · 4 CPUs · 16 GiB RAM · low``."""
    parts = [f"{request.gpus} {'GPU' if request.gpus.hundredths <= 100 else 'GPUs'}"]
    if request.memory_limit is not None:
        parts.append(f"{request.memory_limit // _GIB} GiB")
    if host.cpus is not None:
        parts.append(f"{host.cpus:g} {'CPU' if host.cpus <= 1 else 'CPUs'}")
    if host.memory is not None:
        parts.append(f"{host.memory // _GIB} GiB RAM")
    if request.workload_class is WorkloadClass.OPPORTUNISTIC:
        parts.append(_LOW)
    if host.folders is not None:
        parts.append(f"with {', '.join(host.folders)}" if host.folders else "no folders")
    return " · ".join(parts)


def _read(asked: _Asked, size: str) -> tuple[Request, HostPart]:
    size, *folders = size.split(_WITH)
    gpus, *options = size.split("-")
    share = _read_share(asked, gpus or size)
    memory: Bytes | None = None
    if options and (match := _MEMORY.fullmatch(options[0])):
        options.pop(0)
        memory = Bytes(int(match.group(1)) * _GIB)
        if not memory:
            raise asked.refusal("a memory limit is 1 GiB or more")
    cpus, ram = _read_cpus(asked, options), _read_ram(asked, options)
    host = HostPart(cpus, ram, _read_folders(asked, folders))
    is_low = options == [_LOW]
    if options and not is_low:
        raise asked.refusal(f"'-{'-'.join(options)}' is no option (a memory limit comes before -low)")
    return Request(share, memory, WorkloadClass.OPPORTUNISTIC if is_low else WorkloadClass.PRODUCTION), host


def _read_cpus(asked: _Asked, options: list[str]) -> float | None:
    """Take the CPUs from the front of *options*."""
    if not options or not (match := _CPUS.fullmatch(options[0])):
        return None
    options.pop(0)
    if not float(match.group(1)):
        raise asked.refusal(f"CPUs are {CPU_STEP} or more")
    return float(match.group(1))


def _read_ram(asked: _Asked, options: list[str]) -> Bytes | None:
    """Take the memory of the host from the front of *options*."""
    if not options or not (match := _RAM.fullmatch(options[0])):
        return None
    options.pop(0)
    if not int(match.group(1)):
        raise asked.refusal("memory of the host is 1 GiB or more")
    return Bytes(int(match.group(1)) * _GIB)


def _read_folders(asked: _Asked, folders: list[str]) -> tuple[str, ...] | None:
    if not folders:
        return None
    if folders == [NO_FOLDER]:
        return ()
    if NO_FOLDER in folders or len(set(folders)) < len(folders) or not all(map(_FOLDER.fullmatch, folders)):
        raise asked.refusal(f"after {_WITH!r} comes the name of one folder, each once, or {NO_FOLDER!r}")
    return tuple(folders)


def _read_share(asked: _Asked, text: str) -> GpuShare:
    if text.startswith("-"):
        raise asked.refusal(f"{text!r} is negative or no number of GPUs")
    if _FINE_SHARE.fullmatch(text):
        raise asked.refusal(f"{text} has more than two decimals")
    if not _SHARE.fullmatch(text):
        raise asked.refusal(f"{text!r} is no number of GPUs")
    share = GpuShare.parse(text)
    if share < STEP:
        raise asked.refusal("a share of 0 GPUs is nothing to run on; take the plain kernelspec instead")
    if asked.largest is not None and share > asked.largest:
        most = "1 GPU" if str(asked.largest) == "1" else f"{asked.largest} GPUs"
        raise asked.refusal(f"{share} is more than the {most} that may be asked for here")
    return share
