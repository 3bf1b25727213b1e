"""The page and its sources belong together; the bundler knows what it cannot bundle."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from taut.explore import open_address, page, write_page
from taut.explore.bundle import bundle
from taut.explore.page import BUILT
from tests.helpers.places import SOURCE, needs_repository

SOURCES = SOURCE / "explore" / "sources"


class Markup(HTMLParser):
    """Every tag of the page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@needs_repository
def test_the_page_is_built_from_these_sources():
    pytest.importorskip("torch")
    from taut.explore.build import built

    assert built() == page(), "run `python -m taut.explore.build`"


def test_the_page_is_one_file_of_five_megabytes_at_most():
    assert BUILT.stat().st_size <= 5_000_000
    for tag, attributes in Markup(page()).tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "srcset", "data", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    script = page().split('<script type="module">')[1]
    assert "http" not in script.replace("http://www.w3.org/2000/svg", "")
    for way_out in (
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
        "sendBeacon",
        "EventSource",
        "importScripts",
    ):
        assert way_out not in script
    for markup in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    ):
        assert markup not in script


def test_the_policy_allows_nothing_but_the_page_itself():
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page())
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'"
    assert rules.pop("img-src") == "data:"
    assert rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    for name in ("script-src", "style-src"):
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", rules.pop(name))
    assert not rules


def test_modules_are_small_and_say_what_they_are():
    for file in SOURCES.rglob("*.js"):
        if "node_modules" in file.parts:
            continue
        text = file.read_text(encoding="utf-8")
        assert text.startswith("// "), f"{file.name} does not begin with what it is"
        assert text.count("\n") <= 170, f"{file.name} is long"
        assert max(map(len, text.splitlines())) <= 260, file.name


@pytest.mark.slow
def test_types_are_checked():
    """JSDoc types by TypeScript, where it is installed: npm ci in the folder of the sources."""
    local = SOURCES / "node_modules" / ".bin" / "tsc"
    tsc = str(local) if local.exists() else shutil.which("tsc")
    if tsc is None:
        pytest.skip("TypeScript is not installed: run `npm ci` in src/taut/explore/sources")
    done = subprocess.run([tsc, "-p", SOURCES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_modules_become_one_script(tmp_path):
    (tmp_path / "a.js").write_text(
        'import {\n  two,\n  Three,\n} from "./b/c.js";\nexport const one = two() - 1;\n'
    )
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.js").write_text(
        "export function two() { return 2; }\nexport class Three {}\nconst own = 1;\n"
    )
    script = bundle(tmp_path / "a.js")
    assert script.index("$b$c = ") < script.index("$a = ")
    assert "const { two, Three } = $b$c;" in script
    assert "return { two, Three };" in script
    assert "import" not in script


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('import { a as b } from "./c.js";\nimport x from "./c.js";\n', "cannot bundle"),
        ("export default 1;\n", "cannot bundle"),
        ("export let changing = 1;\n", "cannot bundle"),
        ('const evil = "</script>";\n', "cannot hold"),
        ('import { a } from "./a.js";\n', "imports itself"),
    ],
)
def test_what_cannot_be_bundled_is_refused(tmp_path, text, why):
    (tmp_path / "a.js").write_text(text)
    (tmp_path / "c.js").write_text("export const a = 1;\n")
    with pytest.raises(ValueError, match=why):
        bundle(tmp_path / "a.js")


def test_the_page_can_be_written_somewhere(tmp_path):
    file = write_page(tmp_path / "here.html")
    assert file.read_text(encoding="utf-8") == page()
    assert open_address(file) == file.as_uri()
    assert open_address() == BUILT.as_uri()
    with pytest.raises(OSError, match="cannot write"):
        write_page(tmp_path / "no" / "here.html")


def test_the_command(tmp_path, monkeypatch):
    pytest.importorskip("typer")
    import webbrowser

    from tests.helpers.command_line import taut

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    done = taut("explore", "--no-open")
    assert done.returncode == 0
    assert BUILT.as_uri() in done.stdout.replace("\n", "")
    assert not opened
    done = taut("explore", "--output", tmp_path / "a.html")
    assert done.returncode == 0
    assert opened == [(tmp_path / "a.html").as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert "open that address" in taut("explore").stdout
    assert taut("explore", "--output", tmp_path / "no" / "a.html").returncode == 2
