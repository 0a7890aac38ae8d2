"""The base of all subcommands: strict arguments, one-line errors, exit codes.

Exit codes: 0 done, 1 it did not work, 2 the command line was wrong, 130 interrupted.
"""

from __future__ import annotations

import difflib
import logging
import textwrap
from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar

from traitlets import Bool, Float, Integer, TraitType, Unicode
from traitlets.config import Application

from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.base.version import installed_version

# A part of the help of each command that sends a request to a gateway.
WHICH_GATEWAY = """
    The request goes to the server whose terminal this is, in a JupyterHub; else to the gateway that JUPYTER_GATEWAY_URL
    and JUPYTER_GATEWAY_AUTH_TOKEN name; without them to the gateway of this machine."""


def nearest(word: str, known: list[str]) -> str:
    """Return a hint for a mistyped word, or nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _is_whole_number(word: str) -> bool:
    try:
        int(word)
    except ValueError:
        return False
    return True


def metavar(trait: str) -> str:
    """Return the placeholder of an option's value in a help text: FOLDER for ``runtime_dir``."""
    kinds = {
        "range": "RANGE",
        "interval": "SECONDS",
        "dir": "FOLDER",
        "prefix": "FOLDER",
        "memory": "BYTES",
        "notebook": "FILE",
    }
    return kinds.get(trait.rpartition("_")[2], trait.upper())


class Command(Application):
    """A traitlets application that refuses unknown options and words."""

    version = Unicode(installed_version())
    log_format = Unicode("aliquot: %(message)s")
    json_output = Bool(False, help="Print JSON instead of text.").tag(config=True)

    usage = ""
    flags = {"debug": ({"Application": {"log_level": logging.DEBUG}}, "Log each step.")}
    aliases = {}
    accepts_arguments = False
    # By option: the flags of which one has to be there, for the option changes nothing without.
    only_with: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Options of which at most one may be there.
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def parse_command_line(self, argv: list[str] | None = None) -> None:
        """Refuse unknown words, which traitlets would ignore. Called by Application.initialize."""
        if argv is not None:
            self.refuse_unknown(argv)
            argv = self._options_first(argv)
        super().parse_command_line(argv)

    def _options_first(self, argv: list[str]) -> list[str]:
        """Return the words with the options first: argparse takes other words in one place alone."""
        if not self.accepts_arguments:
            return argv
        takes_value, options, others = self._option_names(), list[str](), list[str]()
        is_value = False
        for word in argv:
            is_option = not is_value and word.startswith("-")
            (options if is_option or is_value else others).append(word)
            is_value = is_option and "=" not in word and takes_value.get(word.lstrip("-"), False)
        return [*options, *others]

    def refuse_unknown(self, argv: list[str]) -> None:
        """Raise UsageError for the first word that this command does not understand."""
        if {"-h", "--help", "--help-all", "-V", "--version"} & set(argv):
            return
        options, given = self._option_names(), list[str]()
        waits = ""  # the option whose value is the next word
        for word in argv:
            if waits and (not word or (word.startswith("-") and not _is_number(word))):
                break
            if waits:
                self._refuse_value(waits, word)
                waits = ""
            elif word.startswith("-"):
                name, value = self._read_option(word, options)
                given.append(name)
                waits = word if options[name] and not value else ""
                if value:
                    self._refuse_value(word.partition("=")[0], value)
            elif not self.accepts_arguments:
                raise UsageError(f"{word!r} was not expected: {self.name} takes options only (see {self.name} --help)")
        if waits:
            raise UsageError(f"option {waits.rstrip('=')} needs a value (see {self.name} --help)")
        self._refuse_together(given)

    def _read_option(self, word: str, options: Mapping[str, bool]) -> tuple[str, str]:
        """Return an option's name, and the value behind its "=". Raises UsageError."""
        name, equals, value = word.lstrip("-").partition("=")
        if name not in options:
            hint = nearest(f"--{name}", [f"--{option}" for option in options if "." not in option])
            raise UsageError(f"no option {word.partition('=')[0]}{hint} (see {self.name} --help)")
        if equals and not options[name]:
            raise UsageError(f"option --{name} takes no value (see {self.name} --help)")
        return name, value

    def _refuse_together(self, given: list[str]) -> None:
        """Raise UsageError for an option that would be ignored beside, or without, another one."""
        for group in self.exclusive:
            if len(found := [name for name in group if name in given]) > 1:
                raise UsageError(f"Requested {' and '.join(f'--{name}' for name in found)}. Use one of them")
        for name in given:
            if (needed := self.only_with.get(name)) and not set(needed) & set(given):
                flags = " or ".join(f"--{one}" for one in needed)
                raise UsageError(f"--{name} is for {flags}. Add {flags}, or leave --{name} out")

    def _refuse_value(self, option: str, value: str) -> None:
        """Raise UsageError for a word where the option takes a number."""
        trait = self._trait_of(option.lstrip("-"))
        if isinstance(trait, Float) and not _is_number(value):
            raise UsageError(f"{option} {value!r} is not a number (see {self.name} --help)")
        if isinstance(trait, Integer) and not _is_whole_number(value):
            raise UsageError(f"{option} {value!r} is not a whole number (see {self.name} --help)")

    def _trait_of(self, option: str) -> TraitType[Any, Any] | None:
        owner, _, name = self.aliases.get(option, option).rpartition(".")
        cls = next((cls for cls in self._classes_with_config_traits() if cls.__name__ == owner), None)
        return None if cls is None else cls.class_traits().get(name)

    def emit_help(self, classes: bool = False) -> Generator[str, None, None]:
        """Yield the help of a command, which fits one screen; --help-all adds all settings.

        Called by print_help.
        """
        yield f"usage: {self.usage or self.name + ' [options]'}"
        yield ""
        yield textwrap.dedent("    " + self.description).strip()
        if self.subcommands:
            yield "\ncommands:"
            yield from (f"  {name:<8} {text}" for name, (_, text) in self.subcommands.items())
        yield "\noptions:"
        yield from self._emit_option_lines()
        if self.examples:
            yield "\nexamples:"
            yield textwrap.indent(textwrap.dedent(str(self.examples)).strip(), "  ")
        if classes:
            yield "\nsettings:"
            for cls in self._classes_with_config_traits():
                yield cls.class_get_help()

    def _emit_option_lines(self) -> Iterator[str]:
        lines = [(f"--{key}", str(text)) for key, (_, text) in self.flags.items()]
        for key, target in self.aliases.items():
            owner, _, trait = target.partition(".")
            cls = next(cls for cls in self._classes_with_config_traits() if cls.__name__ == owner)
            lines.append((f"--{key} {metavar(trait)}", str(cls.class_traits()[trait].help)))
        lines += [("--help", "Show this help."), ("--version", "Show the version.")]
        for option, text in sorted(lines):
            yield textwrap.fill(text, 110, initial_indent=f"  {option:<24} ", subsequent_indent=" " * 27)

    def _option_names(self) -> dict[str, bool]:
        """Map each option's name to whether a value follows it."""
        names: dict[str, bool] = {}
        for keys in self.flags:
            names.update(dict.fromkeys(keys if isinstance(keys, tuple) else (keys,), False))
        for keys in self.aliases:
            names.update(dict.fromkeys(keys if isinstance(keys, tuple) else (keys,), True))
        for cls in self._classes_with_config_traits():
            names.update({f"{cls.__name__}.{trait}": True for trait in cls.class_own_traits(config=True)})
        return names


JSON_FLAG: dict[str, Any] = {"json": ({"Command": {"json_output": True}}, "Print JSON instead of text.")}


class PassThroughCommand(Command):
    """A command that hands its arguments to the program that it starts."""

    def parse_command_line(self, argv: list[str] | None = None) -> None:
        """Interpret --help and --version, and keep all other words.

        Called by Application.initialize.
        """
        words = list(argv or [])
        interpreted = words[: words.index("--")] if "--" in words else words
        if {"-h", "--help"} & set(interpreted):
            self.print_help()
            self.exit(0)
        if {"-V", "--version"} & set(interpreted):
            self.print_version()
            self.exit(0)
        self.extra_args = words
