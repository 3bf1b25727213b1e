"""Optional packages: the one that is missing is named with the command that installs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


class MissingPackageError(ImportError):
    """An optional package is missing; the message says how to install it.

    Attributes
    ----------
    what
        What needs which package.
    extras
        The extras of taut that bring it.
    packages
        Packages that no extra brings, as pip takes them.
    """

    what: str = ""
    extras: tuple[str, ...] = ()
    packages: str = ""


def missing(what: str, *extras: str, packages: str = "") -> MissingPackageError:
    """The error to raise where ``what``, such as "reports need jinja2", is not met."""
    error = MissingPackageError(f"{what}: {install(*extras, packages=packages)}")
    error.what, error.extras, error.packages = what, extras, packages
    return error


@contextmanager
def needing(what: str, *extras: str, packages: str = "") -> Iterator[None]:
    """Around the import of optional packages: say ``what`` and how to install them if it fails.

    A package that is there and fails for another reason is quoted, so that nobody installs it anew
    in vain.
    """
    try:
        yield
    except ImportError as error:
        known = what.lower().replace("-", "_")
        absent = isinstance(error, ModuleNotFoundError) and (error.name or "?").lower() in known
        raise missing(what if absent else f"{what} ({error})", *extras, packages=packages) from None


def install(*extras: str, packages: str = "") -> str:
    """The command that installs extras of taut, or other packages, from where the user is."""
    wanted = f"[{','.join(sorted(set(extras)))}]"
    found = _checkout()
    if found is None:
        return f"pip install {packages}" if packages else f'pip install "taut{wanted}"'
    folder, editable = found
    here = folder == Path.cwd()
    constraints = "constraints.txt" if here else f'"{folder / "constraints.txt"}"'
    if packages:
        return f"pip install -c {constraints} {packages}"
    place = f'"{"." if here else folder}{wanted}"'
    return f"pip install -c {constraints} {'-e ' if editable else ''}{place}"


def _checkout() -> tuple[Path, bool] | None:
    """The folder with the sources that taut was installed from, and whether it runs from there."""
    beside = Path(__file__).resolve().parents[3]
    if _has_sources(beside):
        return beside, True
    try:
        record = metadata.distribution("taut").read_text("direct_url.json") or "{}"
        url = urlsplit(json.loads(record).get("url", ""))
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return None
    folder = Path(url2pathname(url.path))
    return (folder, False) if url.scheme == "file" and _has_sources(folder) else None


def _has_sources(folder: Path) -> bool:
    return all(
        (folder / name).exists() for name in ("pyproject.toml", "constraints.txt", "src/taut")
    )
