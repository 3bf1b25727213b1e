"""Join JavaScript modules into one script, so that a page opened from a file can run them.

Browsers do not load modules from files. Each module becomes a function that returns what it
exports, in an order in which everything is defined before it is imported. Only the plain forms of
import and export are known; everything else is refused.
"""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^\s*(import|export)\b.*", re.MULTILINE)


def bundle(entry: Path) -> str:
    """The script of a module and of all that it imports."""
    parts: dict[Path, str] = {}
    _add(entry.resolve(), entry.resolve().parent, parts, ())
    script = "\n".join(parts.values())
    for forbidden in ("</script", "<!--"):
        if forbidden in script.lower():
            raise ValueError(f"a script in a page cannot hold {forbidden!r}")
    return script


def _add(module: Path, root: Path, parts: dict[Path, str], above: tuple[Path, ...]) -> None:
    """Add a module after those that it imports."""
    if module in above:
        raise ValueError(f"{module.name} imports itself through {above[-1].name}")
    if module in parts:
        return
    text = module.read_text(encoding="utf-8")
    imported = []
    for names, place in _IMPORT.findall(text):
        other = (module.parent / place).resolve()
        _add(other, root, parts, (*above, module))
        listed = ", ".join(name.strip() for name in names.split(",") if name.strip())
        imported.append(f"const {{ {listed} }} = {_name(other, root)};\n")
    exported = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub("", text))
    if unknown := _OTHER.search(body):
        raise ValueError(f"{module.name}: cannot bundle {unknown[0].strip()!r}")
    lines = f"{''.join(imported)}{body}return {{ {exported} }};\n"
    parts[module] = f"const {_name(module, root)} = (() => {{\n{lines}}})();"


def _name(module: Path, root: Path) -> str:
    """A variable for a module: its path with $ between the folders."""
    return "$" + "$".join(module.relative_to(root).with_suffix("").parts)
