"""All settings of c.Aliquot, each with one default and one help line. It decides nothing.

Set them in a Jupyter configuration file (`c.Aliquot.presets = [...]`) or on the command line
(`--Aliquot.driver=nvidia`).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from traitlets import (
    Bool,
    Dict,
    Enum,
    Float,
    HasTraits,
    Int,
    List,
    TraitError,
    TraitType,
    Unicode,
    validate,
)
from traitlets.config import Configurable

from jupyter_aliquot.gateway.auth.class_policy import ClassPolicy
from jupyter_aliquot.gateway.replay.cells import Budget
from jupyter_aliquot.gateway.replay.store import CellOutputs
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.gateway.sizes.grammar import parse_size
from jupyter_aliquot.provisioner.errors import SizeNameError
from jupyter_aliquot.provisioner.grants.codec import RESIDENCY_MODES
from jupyter_aliquot.provisioner.kernel_accounts import ACCOUNT_LIST
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request

DRIVERS = ("auto", "nvidia", "softgpu")
GATEWAY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}")

# Socket paths are shorter than 108 bytes. The longest name under the runtime folder takes the rest.
_LONGEST_RUNTIME_DIR = 50


class NamesOrRule(List):  # type: ignore[type-arg]  # of texts; a Union with Callable would read no command line
    """A list of names, or a function in their place."""

    info_text = "a list of names, or a function"

    def validate(self, obj: Any, value: Any) -> Any:
        """Called by traitlets."""
        return value if callable(value) else super().validate(obj, value)


class AccountsOrRule(Dict):  # of texts; a Union with Callable would read no command line
    """A table of accounts by users' names, or a function in its place."""

    info_text = "a table of accounts by users' names, or a function of a user's name"

    def validate(self, obj: Any, value: Any) -> Any:
        """Called by traitlets."""
        return value if callable(value) else super().validate(obj, value)


class Aliquot(Configurable):
    """The server's configuration."""

    presets = List(
        Unicode(),
        ["0.25", "0.5", "1", "0.25-low"],
        help="Sizes listed for each kernelspec, as <gpus>[-<n>g][-low]; other sizes work by name.",
    ).tag(config=True)
    largest_gpus = Float(
        8.0, help="The most GPUs that one kernel may ask for. A start also checks the room on the node."
    ).tag(config=True)
    user_limit_gpus = Float(
        0.0, help="The most GPUs that one user may hold or wait for on this server; 0 for no limit."
    ).tag(config=True)
    user_limits = Dict(
        key_trait=Unicode(),
        help="The same for single users, {'alice': 1.0}; None for no limit, 0 for no GPU. It comes before "
        "user_limit_gpus.",
    ).tag(config=True)
    team_limits = Dict(
        key_trait=Unicode(),
        help="The most GPUs that the kernels of a team's members may hold or wait for together, {'vision': 2.0}; 0 for "
        "none. They count for each team that their owner was in when they were asked for.",
    ).tag(config=True)
    quota_file = Unicode(
        "",
        help="The YAML file of teams, their quotas and the queue, which is read again when it changes; empty for none.",
    ).tag(config=True)
    normal_priority_for = NamesOrRule(
        Unicode(),
        ["*"],
        help="Users who may have kernels of normal priority: names, @teams, * for all; administrators always may. "
        "Or a function of a user (name, role, teams), which decides about administrators, too.",
    ).tag(config=True)
    residency = Enum(
        ("", *RESIDENCY_MODES),
        "",
        help="How memory of idle kernels may leave their GPU: vmm, managed or off; empty: as the node agent has it.",
    ).tag(config=True)
    size_residency = Dict(
        key_trait=Unicode(),
        value_trait=Enum(RESIDENCY_MODES),
        help="The same for single sizes: {'0.25-low': 'managed'}. An image's own `residency` comes before.",
    ).tag(config=True)
    runtime_dir = Unicode(
        "", help="Folder of the node agent's sockets; empty for the usual places (see agent-protocol.md)."
    ).tag(config=True)
    runtime = Enum(
        ("local", "kubernetes"),
        "local",
        help="Where kernels run: local, as processes and containers of this machine; or kubernetes, as pods on the "
        "nodes whose agents dial in (see c.KernelPods).",
    ).tag(config=True)
    start_agent = Bool(True, help="Start a node agent when none runs on this machine.").tag(config=True)
    agent_token_file = Unicode(
        "",
        help="File with the tokens of agents on other machines that dial this gateway: TOKEN or NODE TOKEN a line. "
        "Empty: none may.",
    ).tag(config=True)
    agent_service_account = Unicode(
        "",
        help="In a cluster: the ServiceAccount of the agents, as NAMESPACE/NAME, whose tokens Kubernetes checks. "
        "It comes before agent_token_file.",
    ).tag(config=True)
    agent_wait_seconds = Float(20.0, help="How long to wait for a node agent that was just started.").tag(config=True)
    driver = Unicode(
        "auto",
        help="Driver of a started agent: nvidia, softgpu (the software GPU), or auto: nvidia where there is one.",
    ).tag(config=True)
    softgpu_devices = Int(0, help="How many devices a started software GPU has; 0 for its default.").tag(config=True)
    softgpu_memory = Unicode("", help="Memory of each of its devices (4GiB); empty for its default.").tag(config=True)
    softgpu_sm_count = Int(0, help="Multiprocessors of each of its devices; 0 for its default.").tag(config=True)
    softgpu_link_gbps = Float(0.0, help="Speed of each one's link to the host, in GB/s; 0 for its default.").tag(
        config=True
    )
    agent_options = List(
        Unicode(), [], help="More options for a started node agent, as `aliquot agent --help` lists them."
    ).tag(config=True)
    queue_timeout_seconds = Float(
        0.0, help="How long a kernel may wait for room before its start fails; 0 for as long as its requester waits."
    ).tag(config=True)
    status_refresh_seconds = Float(1.0, help="How often the state of devices and kernels is read.").tag(config=True)
    unhooked_process_policy = Enum(
        ("report", "end"),
        "report",
        help="Treatment of a kernel with GPU memory that its hook does not see: report shows it, end ends it.",
    ).tag(config=True)
    require_interception = Bool(
        False, help="End a kernel whose GPU calls are not seen; if not set it runs on, shown as uncontrolled."
    ).tag(config=True)

    allow_root_kernels = Bool(
        False,
        help="Let a Hub's gateway that runs as root start kernels as processes, which are root's then: every user is "
        "root on this machine.",
    ).tag(config=True)

    run_kernels_as = Enum(
        ("gateway", "owner"),
        "gateway",
        help="Account of kernels that are processes: the gateway's, or their owner's. For owner a relay host "
        "of root has to run: configure(run_kernels_as='owner') has the Hub start it.",
    ).tag(config=True)
    account_of = AccountsOrRule(
        key_trait=Unicode(),
        help="With run_kernels_as, and for images with user 'owner': the accounts of users whose names differ from "
        "their accounts', {'alice@example.org': 'alice'}. Or a function of the user's name, which returns the "
        "account's.",
    ).tag(config=True)
    kernelspec_folders = List(
        Unicode(),
        [".local/share/jupyter/kernels"],
        help="With run_kernels_as='owner': where kernelspecs of users are looked for, as each user: folders below the "
        "user's home, or absolute ones, in which {account} is the account's name. Name those of JUPYTER_DATA_DIR and "
        "JUPYTER_PATH here, with `kernels` at their end.",
    ).tag(config=True)
    client_accounts = Unicode(
        str(ACCOUNT_LIST),
        help="With run_kernels_as='owner': root's list of the accounts whose own programs, such as papermill in a "
        "terminal, may ask this gateway for GPUs. Empty: none may.",
    ).tag(config=True)
    user_of = AccountsOrRule(
        key_trait=Unicode(),
        help="The users of accounts whose programs ask, by the accounts' names, where account_of does not tell: it "
        "is a function, or names one account for several users. Or a function of the account's name.",
    ).tag(config=True)

    kept_output_bytes = Int(
        4 << 20,
        help="How much of what a kernel's cells showed is kept in memory for pages that come back; 0 keeps nothing.",
    ).tag(config=True)
    kept_output_messages = Int(10_000, help="The same as a number of messages, of which lines of text are joined.").tag(
        config=True
    )
    kept_output_minutes = Float(30.0, help="How long it is kept after a cell's end.").tag(config=True)
    kept_output_total_bytes = Int(256 << 20, help="How much is kept for all kernels together.").tag(config=True)

    gateway_name = Unicode(
        "", help="Name under which kernels are found again after a restart; empty for one a served folder and machine."
    ).tag(config=True)
    state_dir = Unicode(
        "", help="Folder in which gateways remember their kernels; empty for aliquot/gateways in Jupyter's data folder."
    ).tag(config=True)
    keep_kernels = Enum(
        ("auto", "always", "never"),
        "auto",
        help="Whether kernels outlive a stop of the server; auto: SIGTERM keeps them, a requested "
        "stop (Ctrl-C, POST /api/shutdown) ends them. never: they end even with a killed server.",
    ).tag(config=True)
    local_kernels = Bool(
        True,
        help="On a server in gateway mode: whether its own kernelspecs are offered beside the gateway's, as "
        "local.NAME. Their kernels run here, without a GPU, and end with this server.",
    ).tag(config=True)
    orphan_seconds = Float(
        -1.0,
        help="How long kernels wait for a gateway before they end; 0 for ever, -1 for a day in `aliquot serve` and an "
        "hour elsewhere.",
    ).tag(config=True)

    def preset_requests(self) -> list[Request]:
        """Return the presets, parsed, and each once."""
        return list(dict.fromkeys(parse_size(preset) for preset in self.presets))

    def class_policy(self) -> ClassPolicy:
        """Return the policy which user may have which priority."""
        rule = self.normal_priority_for
        return ClassPolicy(rule if callable(rule) else tuple(rule))

    def residency_of(self, request: Request) -> str:
        """Return how memory of kernels of this size may leave their GPU.

        Empty for the node agent's setting.
        """
        modes = {parse_size(size): mode for size, mode in self.size_residency.items()}
        return str(modes.get(request, self.residency))

    def largest(self) -> GpuShare:
        """Return the largest share that one kernel may request."""
        return GpuShare(round(self.largest_gpus * 100))

    def quota_path(self) -> Path | None:
        """Return the path of the quota file; None for none."""
        return Path(self.quota_file) if self.quota_file else None

    def gpu_caps(self) -> GpuCaps:
        """Return the GPU limits of users and teams."""
        return GpuCaps(
            GpuShare(round(self.user_limit_gpus * 100)) if self.user_limit_gpus else None,
            {name: None if gpus is None else GpuShare(round(gpus * 100)) for name, gpus in self.user_limits.items()},
            {name: GpuShare(round(gpus * 100)) for name, gpus in self.team_limits.items()},
        )

    def softgpu_bytes(self) -> Bytes | None:
        """Return the memory of each device of the software GPU; None for its own default."""
        return Bytes.parse(self.softgpu_memory) if self.softgpu_memory else None

    def cell_outputs(self) -> CellOutputs | None:
        """Return the store of cells' outputs; None if nothing is to be kept."""
        if not (self.kept_output_bytes and self.kept_output_total_bytes):
            return None
        seconds = 60 * self.kept_output_minutes
        limits = (self.kept_output_bytes, self.kept_output_messages, self.kept_output_total_bytes)
        return CellOutputs(Budget(*limits, seconds))

    @validate("presets")
    def _presets_are_sizes(self, proposal: dict[str, Any]) -> list[str]:
        presets: list[str] = proposal["value"]
        for preset in presets:
            try:
                parse_size(preset, self.largest())
            except SizeNameError as error:
                raise TraitError(f"c.Aliquot.presets: {error}") from None
        return presets

    @validate("agent_service_account")
    def _is_an_account(self, proposal: dict[str, Any]) -> str:
        account: str = proposal["value"]
        if account and not all(account.partition("/")):
            raise _refused(proposal, "NAMESPACE/NAME")
        return account

    @validate("normal_priority_for")
    def _normal_priority_is_for_names(self, proposal: dict[str, Any]) -> Any:
        rule = proposal["value"]
        for name in () if callable(rule) else rule:
            if not name.strip() or name == "@" or not name.isprintable():
                raise _refused(proposal, "names of users, teams as @team, * for all, or a function of a user")
        return rule

    @validate("size_residency")
    def _modes_are_of_sizes(self, proposal: dict[str, Any]) -> dict[str, str]:
        modes: dict[str, str] = proposal["value"]
        for size in modes:
            try:
                parse_size(size)
            except SizeNameError as error:
                raise TraitError(f"c.Aliquot.size_residency: {error}") from None
        return modes

    @validate("account_of", "user_of")
    def _accounts_are_names(self, proposal: dict[str, Any]) -> Any:
        rule = proposal["value"]
        if not callable(rule) and not all(isinstance(name, str) and name for name in rule.values()):
            raise _refused(proposal, "a table of accounts by users' names, or a function of a user's name")
        return rule

    @validate("largest_gpus")
    def _largest_is_a_share(self, proposal: dict[str, Any]) -> float:
        return _share(proposal, least=0.01)

    @validate("user_limit_gpus")
    def _limit_is_a_share(self, proposal: dict[str, Any]) -> float:
        return _share(proposal, least=0.0)

    @validate("user_limits", "team_limits")
    def _limits_are_of_names(self, proposal: dict[str, Any]) -> dict[str, float | None]:
        limits: dict[str, float | None] = proposal["value"]
        for name, gpus in limits.items():
            if not name.strip() or not name.isprintable():
                raise _refused(proposal, "a table of names and numbers of GPUs, such as {'alice': 1.0}")
            if gpus is None and proposal["trait"].name == "user_limits":
                continue
            if isinstance(gpus, bool) or not isinstance(gpus, (int, float)) or not _is_share(gpus, least=0.0):
                raise _refused(proposal, f"a number of GPUs from 0 to 9999 in steps of 0.01 for {name!r}")
        return limits

    @validate("agent_options")
    def _options_are_words(self, proposal: dict[str, Any]) -> list[str]:
        options: list[str] = proposal["value"]
        for option in options:
            if (option.startswith("[") and option.endswith("]")) or (option.startswith("--") and " " in option):
                raise _refused(
                    {**proposal, "value": option},
                    "one word for each time that it is given: --Aliquot.agent_options=--overcommit "
                    "--Aliquot.agent_options=1, or c.Aliquot.agent_options = ['--overcommit', '1'] in a file",
                )
        return options

    @validate("runtime_dir")
    def _sockets_fit_below(self, proposal: dict[str, Any]) -> str:
        path: str = proposal["value"]
        if len(path.encode()) > _LONGEST_RUNTIME_DIR:
            raise _refused(proposal, f"a path of at most {_LONGEST_RUNTIME_DIR} bytes, for sockets lie below it")
        if path and not path.startswith("/"):
            raise _refused(proposal, "an absolute path")
        return path

    @validate("state_dir", "quota_file")
    def _path_is_absolute(self, proposal: dict[str, Any]) -> str:
        path: str = proposal["value"]
        if path and not path.startswith("/"):
            raise _refused(proposal, "an absolute path")
        return path

    @validate("gateway_name")
    def _name_is_a_word(self, proposal: dict[str, Any]) -> str:
        name: str = proposal["value"]
        if name and not GATEWAY_NAME.fullmatch(name):
            raise _refused(proposal, "1 to 41 letters, digits, '_', '.' and '-', the first a letter or digit")
        return name

    @validate("orphan_seconds")
    def _orphans_wait_a_while(self, proposal: dict[str, Any]) -> float:
        seconds = float(proposal["value"])
        if seconds != -1 and not 0 <= seconds < math.inf:
            raise _refused(proposal, "a number of seconds, 0 for ever, or -1 for the default")
        return seconds

    @validate("driver")
    def _driver_is_known(self, proposal: dict[str, Any]) -> str:
        driver: str = proposal["value"]
        if driver not in DRIVERS:
            raise _refused(proposal, f"one of {', '.join(DRIVERS)}")
        return driver

    @validate("softgpu_memory")
    def _memory_is_an_amount(self, proposal: dict[str, Any]) -> str:
        try:
            enough = not proposal["value"] or Bytes.parse(proposal["value"]) >= 16 << 20
        except ValueError:
            enough = False
        if not enough:
            raise _refused(proposal, "an amount of memory of 16MiB or more, such as 4GiB")
        return str(proposal["value"])

    @validate("status_refresh_seconds")
    def _is_above_zero(self, proposal: dict[str, Any]) -> float:
        if not 0 < proposal["value"] < math.inf:
            raise _refused(proposal, "a number above 0")
        return float(proposal["value"])

    @validate(
        "agent_wait_seconds",
        "queue_timeout_seconds",
        "softgpu_devices",
        "softgpu_sm_count",
        "softgpu_link_gbps",
        "kept_output_bytes",
        "kept_output_messages",
        "kept_output_minutes",
        "kept_output_total_bytes",
    )
    def _is_not_negative(self, proposal: dict[str, Any]) -> float:
        if not 0 <= proposal["value"] < math.inf:
            raise _refused(proposal, "a number, 0 or more")
        return proposal["value"]  # type: ignore[no-any-return]  # int or float, as the trait is


def configuration_page(*classes: type[HasTraits]) -> str:
    """Return docs/reference/configuration.md, made from these classes' definitions."""
    lines = [
        "# Configuration of the server",
        "",
        "Generated from the code by `tools/reference_pages.py`. Set them in a Jupyter configuration file, for example "
        "`jupyter_server_config.py`, "
        "or on the command line: `--Aliquot.driver=softgpu`. A wrong value ends the server at its start, and says why.",
        "",
        "See also: [sizes](sizes.md), [images](images.md), [REST](rest-api.md), "
        "[share one server between several users](../how-to/two-users.md).",
    ]
    for cls in classes:
        lines += ["", f"## c.{cls.__name__}", "", "| setting | default | what it does |", "|---|---|---|"]
        lines += [_row(name, trait) for name, trait in _own_settings(cls)]
    return "\n".join(lines) + "\n"


def configuration_of(server: object) -> Aliquot | None:
    """Return the configuration that the extension of *server* read.

    None if the server does not load the extension.
    """
    extensions = getattr(server, "extension_manager", None)
    for apps in () if extensions is None else extensions.extension_apps.values():
        for app in apps:
            found = getattr(app, "configuration", None)
            if isinstance(found, Aliquot):
                return found
    return None


def _own_settings(cls: type[HasTraits]) -> list[tuple[str, TraitType[Any, Any]]]:
    return [(name, trait) for name, trait in cls.class_own_traits().items() if trait.metadata.get("config")]


def _row(name: str, trait: TraitType[Any, Any]) -> str:
    default = trait.default()
    help_text = trait.help.replace("|", "\\|")
    return f"| `{name}` | `{default!r}` | {help_text} |"


def _share(proposal: dict[str, Any], least: float) -> float:
    value: float = proposal["value"]
    if not _is_share(value, least):
        raise _refused(proposal, f"a number of GPUs from {least:g} to 9999 in steps of 0.01")
    return value


def _is_share(value: float, least: float) -> bool:
    return least <= value <= 9999 and abs(value * 100 - round(value * 100)) <= 1e-6


def _refused(proposal: dict[str, Any], wanted: str) -> TraitError:
    return TraitError(f"c.Aliquot.{proposal['trait'].name}: {proposal['value']!r} is not valid. Use {wanted}")
