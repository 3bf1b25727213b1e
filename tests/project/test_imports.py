"""Who imports whom: packages downwards and through their front doors, modules without cycles."""

from __future__ import annotations

from tests.helpers.places import SOURCE
from tests.helpers.source_tree import (
    ORDER,
    cycles,
    declared,
    imports,
    modules,
    package,
    rank,
)

IMPORTS = imports()
# Packages inside packages that are public themselves.
PUBLIC_INSIDE = {"taut.reproduce.seq2seq"}


def is_public_package(module: str) -> bool:
    return module == "taut" or module == f"taut.{package(module)}" or module in PUBLIC_INSIDE


def test_every_package_has_its_place():
    names = {path.stem for path in SOURCE.glob("*.py")}
    names |= {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert names <= {name for row in ORDER for name in row}


def test_imports_go_downwards():
    found = set()
    for each in IMPORTS:
        own, other = package(each.importer), package(each.module)
        if own != other and rank(other) >= rank(own):
            where = "above" if rank(other) > rank(own) else "beside"
            found.add(f"{each} imports {each.module}, which stands {where} it")
    assert not found, "\n".join(sorted(found))


def goes_through_the_door(module: str, name: str | None) -> bool:
    """Whether an import from another package takes the package itself or a name of its __all__."""
    public = declared(modules()[module]) if module in modules() else None
    return is_public_package(module) and (name is None or name in (public or ()))


def test_packages_are_entered_by_their_front_doors():
    found = set()
    for each in IMPORTS:
        own, other = package(each.importer), package(each.module)
        free = own == other or other == "_base" or (own, other) == ("__init__", "_softmax")
        if not free and not goes_through_the_door(each.module, each.name):
            door = f"from taut.{other} import {each.name or '...'}"
            words = f"{each} imports {each.name or 'a module'} from {each.module}: use `{door}`"
            found.add(words + ", and put the name into that package's __all__")
    assert not found, "\n".join(sorted(found))


def test_private_names_stay_in_their_module():
    found = {
        f"{each} imports {each.module}.{each.name}"
        for each in IMPORTS
        if each.name and each.name.startswith("_") and not each.name.startswith("__")
    }
    assert not found, "\n".join(sorted(found))


def test_no_cycle_hides_in_a_package():
    edges: dict[str, set[str]] = {}
    for each in IMPORTS:
        if each.module in modules() and package(each.module) == package(each.importer):
            edges.setdefault(each.importer, set()).add(each.module)
    found = [", ".join(group) for group in cycles(edges)]
    assert not found, "\n".join(found)


def test_only_one_door_to_array_api_compat():
    doors = [path.name for path in SOURCE.rglob("*.py") if "array_api_compat" in path.read_text()]
    assert doors == ["array.py"]


def test_imports_are_found_wherever_they_are(tmp_path):
    """A small tree with one import of each kind: what runs is found, what is for types is not."""
    files = {
        "__init__": "",
        "low/__init__": "from taut.low.a import f\n__all__ = ['f']",
        "low/a": "def f():\n    from taut.low.b import g\n    return g",
        "low/b": "import taut.low.a\ng = 1",
        "high/__init__": "import taut\nh = lambda: taut.low.f, taut.low.b.g",
        "high/c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import taut.low.b",
        "high/d": "from importlib import import_module\nimport_module('taut.low.b')",
        "high/e": "from taut import low as l\nfrom taut.low import b\nl.a",
    }
    for name, text in files.items():
        path = tmp_path / "taut" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = {(each.importer[5:], each.module[5:], each.name) for each in imports(path.parents[1])}
    assert found == {
        ("low", "low.a", "f"), ("low.a", "low.b", "g"), ("low.b", "low.a", None),
        ("high", "low", None), ("high", "low", "f"), ("high", "low.b", None),
        ("high", "low.b", "g"), ("high.d", "low.b", None), ("high.e", "low", None),
        ("high.e", "low.b", None), ("high.e", "low.a", None),
    }  # fmt: skip
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    assert cycles({"a": {"a"}}) == [["a"]]
