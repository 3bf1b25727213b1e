"""The code that a model runs: digests of its files, and of the files that those import.

Imports are followed through the user's own files. Installed libraries count by their version, and
by the files of the classes themselves, which may have been edited in place.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

_REMOTE = "transformers_modules."  # code that came with a model


class SourceFiles(NamedTuple):
    """Digests of files by module, and the versions of the packages that they are in or import."""

    files: dict[str, str]
    versions: dict[str, str]


def source_files(roots: Iterable[str], follow: Callable[[str], bool]) -> SourceFiles:
    """Digest the files of these modules, and of those that they import if ``follow`` says so."""
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
        digest = hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()
        found[label] = digest
        if file.suffix == ".py" and follow(name):
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            for other in _imports(file, digest, package):
                if follow(other):
                    waiting.append(other)
                else:
                    packages.add(other.split(".")[0])
    return SourceFiles(dict(sorted(found.items())), versions(packages))


def is_own(name: str) -> bool:
    """Whether a module is the user's own: neither Python's nor installed."""
    if name.split(".")[0] in sys.stdlib_module_names:
        return False
    file = _file(name)
    return file is not None and not {"site-packages", "dist-packages"} & set(file.parts)


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of packages by their import names, if they are installed."""
    found = {name: _version(name) for name in sorted(packages)}
    return {name: version for name, version in found.items() if version is not None}


@cache
def _version(name: str) -> str | None:
    # The module's own __version__ is no use, as it may not have been imported yet.
    if name in sys.stdlib_module_names:
        return None
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    others = _distributions().get(name, [])
    return ", ".join(sorted({metadata.version(other) for other in others})) or None


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()  # slow: reads the metadata of all installed packages


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
            path = None if spec is None else spec.submodule_search_locations
            if spec is None or (path is None and end < len(parts)):
                return None  # without a path, the search would go through all installed packages
        known = spec.origin if spec is not None and spec.has_location else None
    file = None if known is None else Path(known)
    return file if file is not None and file.is_file() else None


@cache
def _imports(file: Path, digest: str, package: str) -> list[str]:
    """The modules that a file imports anywhere; parsed once for each version of its content."""
    found: list[str] = []
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:
                continue
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return found
