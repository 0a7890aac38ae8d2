"""The settings of the gateway in a Hub's configuration, checked once.

This module changes no configuration.
"""

from __future__ import annotations

import math
import os
import pwd
import re
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from traitlets import TraitError

from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.provisioner.resources import GpuShare

from .size_choice import NO_GPU, SizeChoice, SizeChoiceError

KEEP_KERNELS = ("always", "auto", "never")
RUN_KERNELS_AS = ("gateway", "owner")
_LEAST_TOKEN = 8
_SERVICE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


class HubConfigError(TraitError):
    """The arguments of `configure` are not valid, or clash with the rest of jupyterhub_config.py.

    A Hub that reads its configuration ends at a TraitError with the message alone, without a traceback.
    """


@dataclass(frozen=True, kw_only=True)
class HubSettings:
    """The arguments of `configure`; docs/how-to/jupyterhub.md tells what each is for.

    ``url``: where the gateway listens; ``connect_url``: how users' servers reach it, if not by
    that. ``api_token``: of a gateway that the administrator starts; without one the Hub starts it,
    as ``gateway_user``. Limits are in GPUs; a ``user_limit_gpus`` of 0 is none. ``quota_file``: the
    YAML file of teams and quotas, on the gateway's machine. ``keep_kernels``: whether they outlive
    their user's server (always), end with it (never), or as the server's own signal has it (auto);
    ``minutes_without_server``: for how long, 0 for ever.
    ``run_kernels_as``: the account of kernels: the gateway's, or their owner's; empty: accounts.py
    decides. ``account_of``: the accounts of users whose names differ; ``start_relay_host``: whether
    the Hub starts the relay host of root, which a service of its own may be in its place.
    ``gateways``: several gateways, of which each user chooses one, as tables of `label` and of these
    arguments; gateways.py reads them.
    """

    sizes: Sequence[str] = ("0.25", "0.5", "1", "0.25-low")
    default_size: str = NO_GPU
    custom_sizes: bool = True
    largest_gpus: float = 8.0
    user_limit_gpus: float = 0.0
    user_limits: Mapping[str, float | None] = field(default_factory=dict)
    team_limits: Mapping[str, float] = field(default_factory=dict)
    quota_file: str = ""
    admin_groups: Sequence[str] = ()
    name: str = "aliquot"
    url: str = "http://127.0.0.1:8890"
    connect_url: str = ""
    api_token: str = ""
    gateway_user: str = ""
    gateway_options: Sequence[str] = ()
    gateway_environment: Mapping[str, str] = field(default_factory=dict)
    run_kernels_as: str = ""
    account_of: Mapping[str, str] = field(default_factory=dict)
    start_relay_host: bool = True
    keep_kernels: str = "always"
    minutes_without_server: float = 0.0
    gateways: Sequence[Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        self._check_kinds()
        if not _SERVICE_NAME.fullmatch(self.name):
            raise HubConfigError(
                f"configure(name=…): {self.name!r} is not valid. Use lower-case letters, digits and '-._'"
            )
        if self.keep_kernels not in KEEP_KERNELS:
            wanted = ", ".join(KEEP_KERNELS)
            raise HubConfigError(f"configure(keep_kernels=…): {self.keep_kernels!r} is not valid. Use one of {wanted}")
        if not (isinstance(self.minutes_without_server, (int, float)) and 0 <= self.minutes_without_server < math.inf):
            found = self.minutes_without_server
            raise HubConfigError(
                f"configure(minutes_without_server=…): {found!r} is not valid. Use a number, 0 or more"
            )
        self._check_owners()
        if self.api_token and (self.gateway_user or self.gateway_environment):
            raise HubConfigError(
                "configure(api_token=…) is for a gateway that you start yourself; gateway_user and gateway_environment "
                "are for one that the Hub starts. Remove them, or the token"
            )
        if 0 < len(self.api_token) < _LEAST_TOKEN:
            raise HubConfigError(
                f"configure(api_token=…): JupyterHub takes no token of fewer than {_LEAST_TOKEN} characters. Use a "
                "long random text"
            )
        if self.api_token != self.api_token.strip() or not self.api_token.isprintable():
            # Of a file that ends with a line break, for one.
            raise HubConfigError(
                "configure(api_token=…): the token begins or ends with a blank or a line break, or has one that no "
                "header takes. Remove it: open('/etc/aliquot/token').read().strip()"
            )
        _check_url("url", self.url)
        if self.connect_url:
            _check_url("connect_url", self.connect_url)
        if self.quota_file and not self.quota_file.startswith("/"):
            raise HubConfigError(f"configure(quota_file=…): {self.quota_file!r} is not valid. Use an absolute path")
        self.caps()
        if self.has_choice:
            self.choice()

    def _check_owners(self) -> None:
        if self.run_kernels_as not in (*RUN_KERNELS_AS, ""):
            wanted = " or ".join(map(repr, RUN_KERNELS_AS))
            raise HubConfigError(f"configure(run_kernels_as=…): {self.run_kernels_as!r} is not valid. Use {wanted}")
        if callable(self.account_of):
            raise HubConfigError(
                "configure(account_of=…): a function has to run in the gateway. Write c.Aliquot.account_of = … into a "
                "file of its own, and name that in gateway_options=['--config=/etc/aliquot/gateway.py']"
            )
        are_texts = isinstance(self.account_of, Mapping) and all(
            isinstance(one, str) for pair in self.account_of.items() for one in pair
        )
        _check_kind("account_of", self.account_of, are_texts, "a table of accounts by users' names")
        if self.account_of and self.run_kernels_as == "gateway":
            raise HubConfigError("configure(account_of=…) is for run_kernels_as='owner'. Set that, or remove it")

    @property
    def runs_as_owner(self) -> bool:
        """Return whether kernels run as their owners."""
        return self.run_kernels_as == "owner"

    def runtime_dir(self) -> str:
        """Return the runtime folder of a gateway whose kernels run as their owners."""
        return self.gateway_environment.get("ALIQUOT_RUNTIME_DIR") or "/run/aliquot"

    def relay_host_command(self) -> list[str]:
        """Return the command that starts the relay host of root, for kernels that run as their owners."""
        module = "jupyter_aliquot.provisioner.relay"
        return [sys.executable, "-m", module, f"--account={self.gateway_user}", f"--runtime-dir={self.runtime_dir()}"]

    def _check_kinds(self) -> None:
        texts = (
            "name",
            "url",
            "connect_url",
            "api_token",
            "gateway_user",
            "default_size",
            "keep_kernels",
            "quota_file",
        )
        for knob in texts:
            if not isinstance(found := getattr(self, knob), str):
                # The message leaves the value out: it may be a token.
                raise HubConfigError(
                    f"configure({knob}=…): a value of type {type(found).__name__} is not valid. Use a string"
                )
        for knob in ("sizes", "admin_groups", "gateway_options"):
            found = getattr(self, knob)
            is_list = isinstance(found, Collection) and not isinstance(found, str)
            _check_kind(knob, found, is_list and all(isinstance(one, str) for one in found), "a list of strings")
        for knob in ("user_limits", "team_limits", "gateway_environment"):
            found = getattr(self, knob)
            is_table = isinstance(found, Mapping) and all(isinstance(name, str) for name in found)
            _check_kind(knob, found, is_table, "a table by name, such as {'alice': 1}")
        values = self.gateway_environment.values()
        are_texts = all(isinstance(value, str) for value in values)
        _check_kind("start_relay_host", self.start_relay_host, isinstance(self.start_relay_host, bool), "True or False")
        _check_kind("gateway_environment", self.gateway_environment, are_texts, "strings as values, such as {'A': '1'}")
        for name in self.user_limits:
            if name != name.lower():
                warnings.warn(
                    f"configure(user_limits=…): {name!r} has capital letters, and JupyterHub writes names in lower "
                    f"case unless its authenticator does not. Use {name.lower()!r}",
                    stacklevel=2,
                )

    @property
    def has_choice(self) -> bool:
        """Return whether the spawn page offers sizes; else only the kernel picker does."""
        return bool(self.sizes)

    @property
    def is_managed(self) -> bool:
        """Return whether the Hub starts the gateway."""
        return not self.api_token

    def account(self) -> pwd.struct_passwd:
        """Return the entry of ``gateway_user``. Raises HubConfigError where there is none."""
        try:
            return pwd.getpwnam(self.gateway_user)
        except KeyError:
            raise HubConfigError(
                f"configure(gateway_user={self.gateway_user!r}): this machine has no such account. Make it "
                f"(useradd --system --create-home {self.gateway_user}), or name another"
            ) from None

    def home(self) -> str:
        """Return the folder in which a gateway that the Hub starts, and its kernels, begin."""
        told = self.gateway_environment.get("HOME", "")
        return told or (self.account().pw_dir if self.gateway_user else os.path.expanduser("~"))

    def account_id(self) -> int:
        """Return the number of the account of a gateway that the Hub starts. Raises HubConfigError."""
        return self.account().pw_uid if self.gateway_user else os.geteuid()

    def choice(self) -> SizeChoice:
        """Return the sizes that the spawn page offers. Raises HubConfigError."""
        try:
            return SizeChoice.of(
                self.sizes, self.default_size, self.custom_sizes, _share("largest_gpus", self.largest_gpus), self.caps()
            )
        except SizeChoiceError as error:
            raise HubConfigError(f"configure(sizes=…): {error}") from None

    def caps(self) -> GpuCaps:
        """Return the GPU limits of users and teams, as the gateway counts them.

        Raises HubConfigError.
        """
        each_user = _share("user_limit_gpus", self.user_limit_gpus)
        return GpuCaps(
            each_user if each_user.hundredths else None,
            {
                name: None if gpus is None else _share(f"user_limits[{name!r}]", gpus)
                for name, gpus in self.user_limits.items()
            },
            {name: _share(f"team_limits[{name!r}]", gpus) for name, gpus in self.team_limits.items()},
        )

    def command(self) -> list[str]:
        """Return the command that starts the gateway, run by the Hub where it manages the gateway."""
        # A Hub that restarts stops its services as Ctrl-C does; kernels must survive that.
        options = ["--Aliquot.keep_kernels=always", f"--Aliquot.largest_gpus={self.largest_gpus:g}"]
        # Without a name the folder in which the gateway starts would say whose the kernels are.
        options.append(f"--Aliquot.gateway_name={self.name}")
        if self.runs_as_owner:
            options += ["--Aliquot.run_kernels_as=owner", f"--Aliquot.runtime_dir={self.runtime_dir()}"]
        if self.account_of:
            options.append(f"--Aliquot.account_of={dict(self.account_of)!r}")
        if self.user_limit_gpus:
            options.append(f"--Aliquot.user_limit_gpus={self.user_limit_gpus:g}")
        if self.user_limits:
            options.append(f"--Aliquot.user_limits={dict(self.user_limits)!r}")
        if self.team_limits:
            options.append(f"--Aliquot.team_limits={dict(self.team_limits)!r}")
        if self.quota_file:
            options.append(f"--Aliquot.quota_file={self.quota_file}")
        if self.has_choice:
            options += [f"--Aliquot.presets={size}" for size in self.choice().sizes if size != NO_GPU]
        if self.minutes_without_server:
            options.append(f"--Culling.server_gone_seconds={60 * self.minutes_without_server:g}")
        # An option that is given twice is an error: the administrator's own counts.
        theirs = {option.partition("=")[0] for option in self.gateway_options}
        ours = [option for option in options if option.partition("=")[0] not in theirs]
        return [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", "serve", "--hub", *ours, *self.gateway_options]


def _share(knob: str, gpus: float) -> GpuShare:
    wanted = "a number of GPUs from 0 to 9999 in steps of 0.01"
    if isinstance(gpus, bool) or not isinstance(gpus, (int, float)) or not 0 <= gpus <= 9999:
        raise HubConfigError(f"configure({knob}=…): {gpus!r} is not valid. Use {wanted}")
    if abs(gpus * 100 - round(gpus * 100)) > 1e-6:
        raise HubConfigError(f"configure({knob}=…): {gpus!r} is not valid. Use {wanted}")
    return GpuShare(round(gpus * 100))


def _check_kind(knob: str, found: object, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise HubConfigError(f"configure({knob}=…): {found!r} is not valid. Use {wanted}")


def _check_url(knob: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        port, is_url = parts.port, parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        port, is_url = None, False
    # A path after the port would get lost: the Hub's proxy and the gateway add the service's prefix.
    if not is_url or (knob == "url" and parts.path not in ("", "/")):
        raise HubConfigError(f"configure({knob}=…): {url!r} is not valid. Use an address such as http://127.0.0.1:8890")
    if parts.username is not None or any(letter in url for letter in "?#") or not url.isprintable():
        # The message leaves the value out: it may have a password.
        raise HubConfigError(
            f"configure({knob}=…): the address has more than host, port and path. Use one such as http://127.0.0.1:8890"
        )
    if knob == "url" and port is None:
        raise HubConfigError(
            f"configure(url=…): {url!r} has no port. Use an address with its port, such as http://127.0.0.1:8890"
        )
