"""What is public: each package says so in __all__, with docstrings, and the reference lists it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict

import pytest

import taut
from tests.helpers.places import DOCS, needs_repository
from tests.helpers.source_tree import declared, modules

PACKAGES = (
    "taut", "taut.theorems", "taut.attention", "taut.games", "taut.models", "taut.networks",
    "taut.audit", "taut.control", "taut.reproduce", "taut.reproduce.seq2seq", "taut.explore",
)  # fmt: skip


def is_module(package: str, name: str) -> bool:
    return f"{package}.{name}" in modules() and name not in (declared(modules()[package]) or ())


def bound_names(package: str) -> set[str]:
    """Public names that an ``__init__`` binds: what it imports from taut, and what it defines."""
    found = {"__version__"} if package == "taut" else set()
    for node in ast.walk(modules()[package]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "taut":
            names = {alias.asname or alias.name for alias in node.names}
            found |= {name for name in names if package == "taut" or not is_module(package, name)}
    for node in modules()[package].body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {ast.unparse(target) for target in node.targets}
        elif isinstance(node, ast.AnnAssign):
            found.add(ast.unparse(node.target))
    return {name for name in found if not name.startswith("_") or name == "__version__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_what_is_public(package):
    public = declared(modules()[package])
    assert public is not None
    order = sorted(public, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert public in (order, sorted(public))
    assert len(set(public)) == len(public)
    assert bound_names(package) == set(public)
    module = importlib.import_module(package)
    for name in public:
        thing = getattr(module, name)
        if callable(thing) or inspect.ismodule(thing):
            assert inspect.getdoc(thing), f"{package}.{name} has no docstring"


def test_every_public_function_has_an_example():
    for name in taut.__all__:
        thing = getattr(taut, name)
        if inspect.isfunction(thing) and name not in {"add", "heads", "chain"}:
            assert ">>>" in thing.__doc__ or name in {"softmin", "log_softmax", "logsumexp"}, name


def in_the_reference() -> set[str]:
    """Full names that the reference describes."""
    found: set[str] = set()
    module = "taut"
    members = re.compile(r" +:members: (.+)")
    for line in (DOCS / "reference.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\.\. (currentmodule|automodule):: ([\w.]+)", line):
            module = inside = match[2]
        elif match := re.match(r"\.\. auto\w+:: ([\w.]+)", line):
            inside = match[1] if match[1].startswith("taut.") else f"{module}.{match[1]}"
            found.add(inside)
        elif match := members.match(line):
            found |= {f"{inside}.{name}" for name in match[1].split(", ")}
    return found


@needs_repository
@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_has_every_public_name(package):
    public = set(declared(modules()[package]) or ())
    public -= {"__version__", *(name for name in public if f"{package}.{name}" in PACKAGES)}
    missing = {f"{package}.{name}" for name in public} - in_the_reference()
    assert not missing


def test_a_class_name_is_used_once():
    found = defaultdict(list)
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    twice = {name for name, places in found.items() if len(places) > 1}
    assert not twice, {name: found[name] for name in twice}
