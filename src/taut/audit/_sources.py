"""The code that a model runs: digests of its files, and of what those import.

Files of one's own are followed through their imports; installed libraries count by their version,
and by the files of the classes themselves, as these may have been edited in place.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

_REMOTE = "transformers_modules."  # where transformers puts the code that came with a model


class Sources(NamedTuple):
    """Digests of files by module, and the versions of the packages that they are in or import."""

    files: dict[str, str]
    versions: dict[str, str]


def sources(roots: Iterable[str], follow: Callable[[str], bool]) -> Sources:
    """The files of these modules, and of all that they import and ``follow`` says."""
    found: dict[str, str] = {}
    packages: set[str] = set()
    waiting = sorted(set(roots))
    while waiting:
        name = waiting.pop()
        packages.add(name.split(".")[0])
        file = _file(name)
        label = name.rpartition(".")[2] if name.startswith(_REMOTE) else name
        if file is None or label in found:
            continue
        content = file.read_bytes()
        found[label] = hashlib.blake2b(content, digest_size=8).hexdigest()
        if file.suffix == ".py" and follow(name):
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            for other in _imports(content, package):
                if follow(other):
                    waiting.append(other)
                else:
                    packages.add(other.split(".")[0])
    return Sources(dict(sorted(found.items())), versions(packages))


def is_own(name: str) -> bool:
    """Whether a module is neither of Python nor installed."""
    if name.split(".")[0] in sys.stdlib_module_names:
        return False
    file = _file(name)
    return file is not None and not {"site-packages", "dist-packages"} & set(file.parts)


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of packages, as far as they say one."""
    said = {name: getattr(sys.modules.get(name), "__version__", None) for name in packages}
    kept = {name: version for name, version in said.items() if isinstance(version, str)}
    return dict(sorted(kept.items()))


@cache
def _file(name: str) -> Path | None:
    """The file of a module, found without importing it."""
    known = getattr(sys.modules.get(name), "__file__", None)
    if known is None:
        spec, path = None, None
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            try:
                spec = PathFinder.find_spec(".".join(parts[:end]), path)
            except (ImportError, ValueError):
                spec = None
            if spec is None:
                return None
            path = spec.submodule_search_locations
        known = spec.origin if spec is not None and spec.has_location else None
    file = None if known is None else Path(known)
    return file if file is not None and file.is_file() else None


def _imports(content: bytes, package: str) -> Iterator[str]:
    """The modules that a file imports, anywhere in it."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
