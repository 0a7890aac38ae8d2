"""The address grammar, built at the first check of an address.

It would be more than half of a command's start.
"""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
import jupyter_aliquot.gateway.cli.app
from traitlets.utils.importstring import import_item
for path, _ in jupyter_aliquot.gateway.cli.app.COMMANDS.values():
    import_item(path)
import jupyter_aliquot.gateway.serverapp.app
import jsonschema
assert "lark" not in sys.modules
checker = jsonschema.FormatChecker()
texts = [("http://ex\\u00e4mple.org/", "iri"), ("no address", "iri"), ("//a", "iri-reference"), ("<>", "iri-reference")]
print([checker.conforms(text, kind) for text, kind in texts])
assert "lark" in sys.modules
import rfc3987_syntax
assert rfc3987_syntax.__file__ and rfc3987_syntax.RFC3987_SYNTAX_TERMS
"""


_MODULES = """
import importlib.util
import sys
import jupyter_aliquot.gateway.serverapp.lazy_rfc3987
assert importlib.util.find_spec("rfc3987_syntax").name == "rfc3987_syntax"
import rfc3987_syntax.utils
assert "lark" not in sys.modules, "one of its modules needs no grammar"
import rfc3987_syntax.syntax_helpers
assert rfc3987_syntax.syntax_helpers.is_valid_syntax("iri", "http://example.org/")
from rfc3987_syntax import is_valid_syntax, syntax_helpers
assert is_valid_syntax("iri", "http://example.org/") and not is_valid_syntax("iri", "no address")
import rfc3987_syntax
assert rfc3987_syntax.__file__ or rfc3987_syntax.RFC3987_SYNTAX_TERMS
assert sys.modules["rfc3987_syntax"].syntax_helpers is syntax_helpers
assert sys.modules["rfc3987_syntax"].utils is sys.modules["rfc3987_syntax.utils"]
"""


def test_other_packages_may_import_the_modules_of_the_grammars_package() -> None:
    done = subprocess.run([sys.executable, "-c", _MODULES], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_command_and_a_server_are_imported_without_it_and_addresses_are_checked_all_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[True, False, True, False]"
