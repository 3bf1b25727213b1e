"""What the source files say about themselves: their modules, imports, classes and functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.helpers.places import SOURCE

# Packages from the lowest to the highest; those in one row do not import each other.
ORDER = (
    ("theorems",),
    ("_base",),
    ("_softmax",),
    ("__init__",),
    ("attention",),
    ("games",),
    ("models",),
    ("networks", "audit"),
    ("control",),
    ("reproduce",),
    ("explore",),
    ("cli",),
    ("__main__",),
)


class Import(NamedTuple):
    """One name that a module imports from taut, wherever in the module that happens."""

    importer: str
    module: str
    name: str | None  # None if the module itself is imported
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line}"


def module_name(path: Path, source: Path = SOURCE) -> str:
    """The dotted name of a source file."""
    parts = [source.name, *path.relative_to(source).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules(source: Path = SOURCE) -> dict[str, ast.Module]:
    """The syntax tree of each module, by its dotted name."""
    files = sorted(source.rglob("*.py"))
    return {module_name(f, source): ast.parse(f.read_text(encoding="utf-8")) for f in files}


def package(module: str) -> str:
    """The package of a module, as ORDER names it; of the root it is ``__init__``."""
    return module.split(".")[1] if "." in module else "__init__"


def rank(name: str) -> int:
    """The row of ORDER in which a package stands."""
    return next(place for place, row in enumerate(ORDER) if name in row)


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run, in functions too; not what only type checkers read."""
    for child in ast.iter_child_nodes(tree):
        if _is_for_type_checkers(child):
            for other in child.orelse:
                yield other
                yield from statements(other)
        else:
            yield child
            yield from statements(child)


def declared(tree: ast.Module) -> list[str] | None:
    """``__all__`` as it is written, or None without one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def imports(source: Path = SOURCE) -> list[Import]:
    """Everything that modules of taut import from taut: at the top, in functions, by attribute."""
    trees = modules(source)
    return [found for importer in trees for found in _imports_of(importer, trees)]


def _imports_of(importer: str, trees: dict[str, ast.Module]) -> Iterator[Import]:
    known: dict[str, str] = {}  # names of this module that stand for modules of taut
    nodes = list(statements(trees[importer]))
    for node in nodes:
        for bound, found in _of_statement(importer, node, trees):
            if found.name is None:
                known[bound] = found.module
            if found.module != "taut" or found.name is not None:
                yield found
    for node in nodes:
        if isinstance(node, ast.Attribute):
            first, *rest = ast.unparse(node.value).split(".")
            module = ".".join([known.get(first, ""), *rest])
            if module in trees:
                yield _named(importer, module, node.attr, node.lineno, trees)


def _of_statement(
    importer: str, node: ast.AST, trees: dict[str, ast.Module]
) -> Iterator[tuple[str, Import]]:
    """What a statement imports from taut, with the name that it binds."""
    if isinstance(node, ast.ImportFrom):
        assert not node.level, f"{importer}:{node.lineno}: write the whole name of the module"
        if (node.module or "").split(".")[0] == "taut":
            for alias in node.names:
                found = _named(importer, str(node.module), alias.name, node.lineno, trees)
                yield alias.asname or alias.name, found
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] == "taut":
                yield "taut", Import(importer, "taut", None, node.lineno)
                yield alias.asname or "", Import(importer, alias.name, None, node.lineno)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        module = ast.unparse(node.args[0]).strip("'")
        if module in trees:
            yield "", Import(importer, module, None, node.lineno)


def _named(
    importer: str, module: str, name: str, line: int, trees: dict[str, ast.Module]
) -> Import:
    """A public name comes from its package; any other name may be that of a module."""
    public = declared(trees[module]) or [] if module in trees else []
    if f"{module}.{name}" in trees and (name not in public or module == "taut"):
        return Import(importer, f"{module}.{name}", None, line)
    return Import(importer, module, name, line)


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == number[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1 or node in edges.get(node, ()):
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found
