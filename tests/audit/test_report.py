"""The report of an audit: its numbers are the record's, and nothing in it can do harm."""

from __future__ import annotations

import base64
import hashlib
import html as entities
import json
import re
import shutil
import socket
import subprocess
import threading
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jinja2")

from taut.audit import Record, comparison, findings
from taut.audit.report.comparison_page import comparison_html
from taut.audit.report.page import html, save_picture, write_report
from taut.audit.report.patches import draw_patches, patch_grid
from taut.audit.report.row_text import bfloat16, flip_sentence
from taut.audit.report.standing import standing_figure
from taut.audit.report.svg_small import GroupMean, draw_groups
from taut.audit.report.templates import HERE
from taut.audit.statistics.head_state import HeadState
from taut.audit.statistics.worst_row import WorstRow, worst_row
from taut.models import RowMeasurements

SCRIPT = "<script>alert(1)</script>"
VOID = {"meta", "link", "br", "img", "input", "hr"}
DASH = "–"
# Chromium itself asks its maker for the time and for updates, whatever page is open.
ITS_OWN = re.compile(r"(?<!fonts)\.(google|googleapis|gvt1)\.com[:/]")


def made_up_row(draw, words) -> WorstRow:
    """A row of 20 keys, with words that go round."""
    row = worst_row(draw.normal(size=20), range(20), 7, text=True)
    return row.named(lambda place: words[place % len(words)])


def made_up(
    names=("a.0.attn", "a.1.attn"), heads=3, rows=40, seed=0, words=(" my", " love", "\n")
) -> Record:
    """A record of random rows, as complete as a real one."""
    record = Record({"name": "made up", "parameters": 1234567}, {"file": "text"}, {"batch": 2})
    draw = np.random.default_rng(seed)
    shape = (2, heads, rows)
    for name in names:
        two, share = draw.random(shape) / 2, draw.random(shape)
        values = {"two": two, "one": np.minimum(two * 1.1, 0.5), "entropy": 3 * share}
        values |= {"evenness": share, "top": 1 - share, "first": share**2}
        values |= {"range": 30 * share, "score": 9 * share, "seen": 8 + rows * share}
        kept = np.ones(shape, dtype=bool)
        queries = np.broadcast_to(np.arange(rows), shape)
        state = record.layer(name, 1, HeadState(heads)).state
        state.add(RowMeasurements(values, kept, ~kept, ~kept), np.arange(2), queries)
        record.tokens |= {f"{name}/{h}": f" token{h}" for h in range(heads)}
        state.worst = [made_up_row(draw, words) for _ in range(heads)]
    record.seen, record.complete = [(0, 2)], True
    return record


def hostile(seed=0) -> Record:
    words = (
        SCRIPT,
        "</script><script>alert(2)</script>",
        "\x1b[2J\x00",
        "\u202e",
        '" onclick="x',
        "",
    )
    record = made_up((SCRIPT, "a\u202eb\x00", "x" * 300, ""), words=words, seed=seed)
    record.pictures = {"0": ""}
    record.model = {"name": f"</title>{SCRIPT}", "class": "\ud800", f'"{SCRIPT}': [f"'{SCRIPT}"]}
    record.data = {"file": "--><img src=http://example.org/x onerror=alert(1)>"}
    record.tokens = {f"{SCRIPT}/0": "</script></style>", f"{SCRIPT}/1": "\n", f"{SCRIPT}/2": SCRIPT}
    record.missed = [(SCRIPT, "<b>fused</b>")]
    return record


class Page(HTMLParser):
    """What a browser would make of a page: its tags, tables by caption, and whether tags match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.open: list[str] = []
        self.text = self._caption = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "caption":
            self._caption = ""
        if tag == "tr":
            self.tables.setdefault(self._caption, []).append([])
        if tag in ("td", "th"):
            self.tables[self._caption][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "caption":
            self._caption += data
        elif {"td", "th"} & set(self.open):
            self.tables[self._caption][-1][-1] += data


@pytest.fixture
def record():
    return made_up()


@pytest.mark.parametrize(
    ("name", "title"),
    [("/home/me/models/mine/", "mine"), ("./mine", "mine"), ("owner/name", "owner/name")],
)
def test_title_of_a_folder_is_its_name(name, title):
    record = made_up()
    record.model["name"] = name
    page = html(record)
    assert f"<title>{title}: sensitivity of attention</title>" in page
    assert name in page  # among the facts


def test_the_heat_maps_and_their_tables_are_the_record(record):
    page = Page(html(record))
    for caption, key in (
        ("Mean constant in l2", "mean"),
        ("Largest constant in l2", "largest"),
        ("Mean constant in l1 and l∞", "mean_1"),
        ("Largest constant in l1 and l∞", "largest_1"),
        ("Entropy", "entropy"),
        ("Evenness", "evenness"),
        ("Largest weight", "top"),
        ("Weight of the first key", "first"),
    ):
        head, *rows = page.tables[f"{caption} (exact)"]
        assert head == ["layer", "head 0", "head 1", "head 2"]
        assert [row[0] for row in rows] == ["a.0.attn", "a.1.attn"]
        expected = [f"{row[key]:.4f}" for row in record.heads]
        assert [cell for row in rows for cell in row[1:]] == expected
    assert html(record).count(f"layer 1 head 2: {record.heads[5]['mean']:.4f}</title>") == 1


def test_the_tables_of_heads_are_the_record(record):
    page = Page(html(record))
    caption = next(c for c in page.tables if c.startswith("All heads"))
    elsewhere = ("layer", "head", "sample", "query", "token")
    headings = {c.heading: c for c in record.columns.values() if c.name not in elsewhere}
    assert set(page.tables[caption][0][2:]) == set(headings)
    columns = [headings[heading] for heading in page.tables[caption][0][2:]]
    assert columns[0].name == "mean"
    for line, row in zip(page.tables[caption][1:], record.ranked, strict=True):
        assert line[0] == f"layer {row['layer'][2]} head {row['head']}"
        for cell, column in zip(line[2:], columns, strict=True):
            if not column.kind:
                assert cell == (repr(row[column.name]) if row[column.name] else DASH)
                continue
            shown, true = float(cell.rstrip("%")), row[column.name] * (100 if "%" in cell else 1)
            assert shown == pytest.approx(true, rel=1e-3, abs=6e-2 if "%" in cell else 1e-4)
            assert column.kind != "upper" or shown >= true
    caption = next(c for c in page.tables if c.startswith("The most sensitive row"))
    worst = sorted(record.heads, key=lambda row: -row["largest"])
    for line, row in zip(page.tables[caption][1:], worst, strict=True):
        assert line[1:4] == [f"{row['largest']:.4f}", f"{row['sample']}", f"{row['query']}"]
        assert line[4] == f"' token{row['head']}'"


def test_the_distributions_hold_every_row_once(record):
    page = Page(html(record))
    layers = page.tables["Rows by constant: Every layer"][1:]
    for line, layer in zip(layers, record.layers, strict=True):
        bins = layer.state.histograms["two"].sum(axis=0)
        assert [int(cell) for cell in line[1:]] == [bins[i : i + 8].sum() for i in range(0, 200, 8)]
    heads = page.tables["Rows by constant: The 6 most sensitive heads"][1:]
    assert [sum(map(int, line[1:])) for line in heads] == [row["rows"] for row in record.ranked]
    # Heat maps of constants, distributions, one of curves, the reference, and the panels.
    assert page.text.count("limit ½") == 4 + 2 + 1 + 1 + len(record.heads)


def test_everything_else_that_is_known_is_said(record):
    text = Page(html(record)).text
    for finding in findings(record):
        assert finding.text in text
    assert "1,234,567" in text
    for name, version in record.versions.items():
        assert name in text
        assert version in text


def test_when_and_how_it_was_made_is_said(record):
    record.made = {"date": "2026-11-18T09:30:12Z", "command": f"taut audit {SCRIPT}"}
    text = Page(html(record)).text
    assert "2026-11-18 09:30 UTC" in text
    assert f"taut audit {SCRIPT}" in text
    assert "2026-11-18" in Page(comparison_html([record, made_up()])).text


def test_a_partial_record_and_missed_attention_say_so(record):
    assert "partial" not in html(record)
    assert "missed" not in Page(html(record)).text
    record.complete, record.missed = False, [("a.2.attn", "aten::fused")]
    page = Page(html(record))
    assert "This record is partial" in page.text
    assert "Attention was missed" in page.text
    assert page.tables["Attention that was not seen"][1:] == [["a.2.attn", "aten::fused"]]


def test_records_without_rows_or_layers_make_a_report(record, tmp_path):
    record.layer("empty", 1, HeadState(2))
    assert Page(html(record)).tables["Mean constant in l2 (exact)"][-1] == [
        "empty",
        DASH,
        DASH,
        DASH,
    ]
    nothing = Record({}, {}, {})
    assert "No attention was seen" in Page(html(nothing)).text
    with pytest.raises(ValueError, match="nothing to draw"):
        save_picture(nothing, tmp_path / "a.svg")
    only_empty = Record({}, {}, {})
    only_empty.layer("empty", 1, HeadState(2))
    assert "empty" in Page(html(only_empty)).text


def test_text_of_models_and_data_is_harmless():
    text = html(hostile())
    page = Page(text)
    allowed = {"rect", "svg", "line", "text", "polyline", "path"} | {
        "html",
        "head",
        "body",
        "meta",
        "link",
        "title",
    }
    allowed |= {"style", "header", "nav", "main", "section", "h1", "h2", "h3", "p", "strong", "em"}
    allowed |= {"div", "dl", "dt", "dd", "ul", "ol", "li", "a", "figure", "figcaption", "details"}
    allowed |= {"summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "h4", "span"}
    allowed |= {"g", "input", "label", "script", "i", "sup", "circle", "code", "symbol", "image"}
    assert {tag for tag, _ in page.tags} <= allowed
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
    assert SCRIPT in page.text  # shown, not run
    assert r"'\n'" in page.text
    assert "\u202e" not in text
    assert "\x00" not in text
    text.encode()


@pytest.mark.parametrize("make", [made_up, hostile])
def test_nothing_is_fetched(make):
    for tag, attributes in Page(html(make())).tags:
        for name in ("src", "href", "srcset", "xlink:href", "data", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    style = re.search(r"<style>(.*?)</style>", html(make()), re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_a_screen_reader_finds_its_way(record):
    page = Page(html(record))
    assert ("html", {"lang": "en"}) in page.tags
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert all(a.get("scope") for tag, a in page.tags if tag == "th")
    pictures = [a for tag, a in page.tags if tag == "svg"]
    assert sum(tag == "figure" for tag, _ in page.tags) == 17
    assert len(pictures) >= 17 + len(record.heads)
    assert all(a["role"] in ("img", "group") and a["aria-label"] for a in pictures)
    assert [a["role"] for a in pictures].count("group") == 1  # the map, whose cells are links
    assert "" not in page.tables  # every table has a caption
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    links = {(a["href"] or "")[1:] for tag, a in page.tags if tag == "a"}
    assert links <= set(ids)


def test_size():
    layers = [f"encoder.layer.{i}.attention.self" for i in range(12)]
    assert len(html(made_up(layers, 12)).encode()) < 1_300_000
    layers = [f"encoder.layer.{i}.attention.self" for i in range(64)]
    assert len(html(made_up(layers, 64, rows=2)).encode()) < 12_000_000


def test_files_are_written_whole(record, tmp_path):
    write_report(record, tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text("utf-8") == html(record)
    with pytest.raises(OSError, match="cannot write"):
        write_report(record, tmp_path / "no" / "a.html")
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]


def test_the_picture_is_a_valid_svg(tmp_path):
    save_picture(hostile(), tmp_path / "a.svg")
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    cells = root.findall("{*}rect/{*}title")
    assert len(cells) == 12
    assert f"{SCRIPT} head 0: {hostile().heads[0]['mean']:.4f}" == cells[0].text
    with pytest.raises(ValueError, match="must end in"):
        save_picture(hostile(), tmp_path / "a.png")


# In a real browser.


def browse(page, *options) -> subprocess.CompletedProcess[str]:
    """Open a file in headless Chromium; what it prints."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium and no google-chrome on this computer")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update"]
    command += [f"--user-data-dir={page.parent / 'profile'}", "--enable-logging=stderr"]
    command += [*options, "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def problems(page, server) -> list[str]:
    """Messages on the console and requests that reach a proxy."""
    seen: list[str] = []

    def answer(connection):
        with connection:
            line = connection.recv(200).decode(errors="replace").split("\r\n")[0]
        if line:  # Chromium opens connections to a proxy ahead of time and closes them unused
            seen.append(line)

    def listen():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    proxy = f"--proxy-server=http://127.0.0.1:{server.getsockname()[1]}"
    log = browse(page, proxy, "--proxy-bypass-list=<-loopback>").stderr
    asked = [line for line in seen if not ITS_OWN.search(line)]
    return asked + [line for line in log.splitlines() if "CONSOLE" in line]


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_a_browser_neither_complains_nor_asks_for_anything(tmp_path, server):
    write_report(hostile(), tmp_path / "a.html")
    assert problems(tmp_path / "a.html", server) == []


def test_a_browser_that_asks_or_complains_would_be_noticed(tmp_path, server):
    bad = tmp_path / "bad.html"
    bad.write_text("<img src=http://example.org/picture><script>console.error('oh')</script>")
    found = " ".join(problems(bad, server))
    assert "example.org/picture" in found
    assert "oh" in found


@pytest.mark.parametrize("make", [made_up, hostile])
def test_a_phone_needs_no_scrolling_sideways(make, tmp_path):
    """The report in a frame of 375 pixels, all tables open."""
    text = html(make()).replace("<details>", "<details open>")
    frame = f'<iframe id="f" width="375" height="800" srcdoc="{entities.escape(text)}"></iframe>'
    script = """<pre id="p"></pre><script>onload = () => {
      const root = document.getElementById("f").contentDocument.documentElement;
      const found = [root.scrollWidth, root.clientWidth];
      document.getElementById("p").textContent = JSON.stringify(found);
    }</script>"""
    (tmp_path / "a.html").write_text(f"<!DOCTYPE html><meta charset=utf-8>{frame}{script}", "utf-8")
    found = re.search(r'<pre id="p">(\[.*?\])</pre>', browse(tmp_path / "a.html").stdout)
    assert found is not None
    needed, given = json.loads(found[1])
    assert 300 < needed <= given


@pytest.mark.parametrize("make", [made_up, hostile])
def test_the_page_of_a_comparison_is_harmless_and_whole(make, tmp_path):
    first, last = make(), make(seed=1)
    text = comparison_html([first, last], names=[SCRIPT, "b\x1b[2J"])
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
    assert "\x1b" not in text
    assert SCRIPT in page.text
    table = page.tables["Mean constants in l2, the largest change first"]
    changes = {
        (row["layer"], row["head"]): after["mean"] - row["mean"]
        for row, after in zip(first.heads, last.heads, strict=True)
    }
    shown = [float(line[-1]) for line in table[1:]]
    assert shown == pytest.approx(sorted(changes.values(), key=lambda c: -abs(c)), abs=6e-5)
    for line in table[1:]:
        assert float(line[2]) - float(line[1]) == pytest.approx(float(line[3]), abs=1.1e-4)
    text.encode()


def test_one_script_alone_may_run(record):
    """The policy names the script by its hash, which is that of the file, and no other source."""
    text = html(record)
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script == (HERE / "page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    for word in ("fetch(", "XMLHttpRequest", "innerHTML", "eval(", "import(", "document.write"):
        assert word not in script


def framed(tmp_path, text: str, script: str) -> Any:
    """What a script finds that looks into a page from outside, as JSON."""
    frame = f'<iframe id="f" width="1280" height="900" srcdoc="{entities.escape(text)}"></iframe>'
    outside = f"""<pre id="p"></pre><script>onload = async () => {{
      const page = document.getElementById("f").contentDocument;
      const view = document.getElementById("f").contentWindow;
      const wait = () => new Promise((done) => setTimeout(done, 50));
      let found;
      const look = async () => {{ {script} }};
      try {{ found = await look(); }} catch (error) {{ found = String(error); }}
      document.getElementById("p").textContent = JSON.stringify(found);
    }}</script>"""
    file = tmp_path / "a.html"
    file.write_text(f"<!DOCTYPE html><meta charset=utf-8>{frame}{outside}", "utf-8")
    out = browse(file, "--virtual-time-budget=5000").stdout
    found = re.search(r'<pre id="p">(.*?)</pre>', out, re.DOTALL)
    assert found is not None
    return json.loads(entities.unescape(found[1]))


SHOWN = """const shown = () => [...page.querySelectorAll(".panel")].filter(
  (panel) => view.getComputedStyle(panel).display !== "none").map((panel) => panel.id);"""


def test_cells_open_heads_the_map_shows_other_numbers_and_tables_are_sorted(record, tmp_path):
    found = framed(tmp_path, html(record), SHOWN + """
      const first = shown();
      const cell = page.querySelector('#map a[href="#head-1-2"]');
      cell.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}));
      await wait();
      const second = shown();
      const kept = page.activeElement === cell;
      page.querySelector(".panel:target").focus();
      const inside = page.activeElement.id;
      page.activeElement.dispatchEvent(
        new KeyboardEvent("keydown", {key: "Escape", bubbles: true}));
      const back = page.activeElement === cell;
      cell.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowUp", bubbles: true}));
      const focused = page.activeElement.getAttribute("href");
      const stops = [...page.querySelectorAll("#map a")].filter((a) => a.tabIndex === 0).length;
      const select = page.querySelector("#quantity");
      select.selectedIndex = 1;
      select.dispatchEvent(new Event("change"));
      const map = [select.length, page.querySelector("#map h3").textContent,
        [...page.querySelectorAll("#map rect.cell title")].map((title) => title.textContent)];
      const table = page.querySelector("table.sortable");
      const column = [...table.tHead.rows[0].cells].findIndex(
        (head) => head.textContent.startsWith("largest (exact)"));
      const head = table.tHead.rows[0].cells[column];
      const read = () => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent);
      head.querySelector("button").click();
      const down = read();
      head.querySelector("button").click();
      return [first, second, [kept, inside, back], focused, stops, map, down, read(),
        head.getAttribute("aria-sort")];
    """)  # fmt: skip
    first, second, keyboard, focused, stops, (quantities, title, cells), down, up, state = found
    row = record.ranked[0]
    assert first == [f"head-{row['layer'][2]}-{row['head']}"]
    assert second == ["head-1-2"]
    assert keyboard == [True, "head-1-2", True]
    assert focused == "#head-0-2"
    assert stops == 1
    assert quantities == 11
    assert title == "Largest constant in l2 (exact)"
    expected = [
        f"layer {row['layer'][2]} head {row['head']}: {row['largest']:.4f}" for row in record.heads
    ]
    assert cells == expected
    expected = sorted((f"{row['largest']:.4f}" for row in record.heads), key=float)
    assert up == expected
    assert down == expected[::-1]
    assert state == "ascending"


def test_without_its_script_the_page_is_whole(tmp_path):
    """A policy that allows no script: cells are links, panels open by their names."""
    text = re.sub(r"script-src 'sha256-[^']*'", "script-src 'none'", html(hostile()))
    found = framed(tmp_path, text, SHOWN + """
      const first = shown();
      view.location.hash = "#head-1-1";
      await wait();
      return [first.length, shown(), page.documentElement.className,
        page.querySelectorAll("#other-maps figure").length, page.querySelector("#quantity")];
    """)  # fmt: skip
    assert found == [1, ["head-1-1"], "", 10, None]


def test_no_text_of_others_becomes_markup_or_runs(tmp_path):
    found = framed(tmp_path, html(hostile()), """
      view.alert = () => { view.ran = true; };
      await wait();
      return [page.querySelectorAll("script").length, view.ran || false,
        page.querySelectorAll("[onclick], img").length,
        page.querySelector(".text").textContent];
    """)  # fmt: skip
    scripts, ran, marked, text = found
    assert (scripts, ran, marked) == (1, False, 0)
    assert SCRIPT in text
    assert r"\x1b[2J\x00" in text
    assert "\x1b" not in text


def test_rows_are_shown_with_their_rivals(record):
    """The weights of the two leading keys, before and where both are equal."""
    page, row = Page(html(record)), record.ranked[0]
    worst = record.layers[int(row["layer"][2])].state.worst[row["head"]]
    table = page.tables["The two keys that compete"]
    first, second = worst.leading
    for line, key in zip(table[1:3], (first, second), strict=True):
        assert line[2] == f"{worst.weight_of(key):.3f}"
    scores = np.array(worst.scores)
    assert [float(line[3]) for line in table[1:3]] == pytest.approx([scores.mean()] * 2, abs=5e-4)
    units = np.exp(scores.mean() - scores[0]) * worst.weight_of(first)
    rest = 1 - worst.weight_of(first) - worst.weight_of(second)
    assert float(table[1][4]) == pytest.approx(units / (2 * units + rest), abs=6e-4)
    assert f"length {worst.flip:.3g} in l2" in page.text


def test_a_row_that_rounds_to_a_tie_says_so():
    near = worst_row(np.array([100.1, 100.0, 3.0]), [0, 1, 2], 2)
    assert "Rounded to bfloat16" in flip_sentence(near)
    assert "Rounded" not in flip_sentence(worst_row(np.array([3.0, 1.0]), [0, 1], 1))
    assert "are equal" in flip_sentence(worst_row(np.array([1.0, 1.0]), [0, 1], 1))
    assert "one key" in flip_sentence(worst_row(np.array([1.0]), [0], 0))
    torch = pytest.importorskip("torch")
    values = [*np.random.default_rng(0).normal(size=500) * 50, 0.0, -1.5, 1e30]
    rounded = torch.tensor(values, dtype=torch.float32).bfloat16().double().tolist()
    assert [bfloat16(float(np.float32(value))) for value in values] == rounded


def test_images_show_their_patches():
    row = worst_row(np.random.default_rng(0).normal(size=17), [-1, *range(16)], 5)
    grid = patch_grid(row, [8, 8])
    assert grid == (4, 4, 1)
    assert patch_grid(row, [8, 16]) is None
    assert patch_grid(worst_row(np.zeros(10), range(10), 0), None) is None
    assert grid.place_name(6) == "patch in line 2, column 3"
    picture = ElementTree.fromstring(draw_patches(row, grid, "picture-0"))
    drawn = picture.findall("rect/title")
    assert len(drawn) == 16
    assert picture.find("use").get("href") == "#picture-0"


@pytest.mark.parametrize("number", [5, 8, 11, 14])
def test_labels_of_groups_do_not_run_into_each_other(number):
    """Groups of an image's 1,370 patches go up to 1024+: drawn at 10 pixels, about 6 a digit."""
    names = ["1", *(f"{2**power}+" for power in range(1, number))]
    drawn = ElementTree.fromstring(
        draw_groups([GroupMean(name, name, 0.2, 1, False) for name in names], "groups")
    )
    texts = [each for each in drawn.iter() if each.tag.endswith("text")]
    labels = [(float(each.get("x", 0)), each.text) for each in texts if each.text in names]
    assert labels[0][1] == "1"
    assert len(labels) >= number // 2
    for (left, first), (right, second) in pairwise(labels):
        assert right - left >= 6 * (len(first) + len(second)) / 2


def test_the_curves_are_those_of_the_record():
    torch = pytest.importorskip("torch")
    from taut import audit

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    found = audit.run(layer, [3 * torch.randn(4, 6, 8)], norms=[1, 1.5, 2, float("inf")], logits=2)
    page = Page(html(found))
    state, grid = found.layers[0].state, found.layers[0].grid
    table = {line[0]: line[1:] for line in page.tables["Constants against the exponent p"]}
    largest = [state.maxima[name].max() for name in ("one", "l1.5", "two", "one")]
    cells = table["largest of all rows"]
    exact = [f"{value:.4f} (exact)" for value in (largest[0], *largest[2:])]
    assert [cells[0], *cells[2:]] == exact
    shown, kind = cells[1].split()
    assert kind == "(upper)"
    assert largest[1] <= float(shown) <= largest[1] + 1e-4
    for j, p in enumerate(("1", "1.5", "2", "∞")):
        table = {x[0]: x[1:] for x in page.tables[f"Constants in l{p} against the step size"]}
        for what in ("random", "worst"):
            shown = np.array([float(cell) for cell in table[f"{what} directions (lower)"]])
            measured = getattr(grid, what)[:, j]
            assert (shown <= measured).all()
            assert (shown >= measured - 1e-4).all()
    logits = dict(page.tables["Softmax of the logits, λ = 2"][1:])
    assert logits["rows"] == "24"
    assert logits["largest (exact)"] == f"{found.predictions['largest']:.4f}"


def test_a_notebook_shows_the_record_its_findings_and_comparisons():
    shown = hostile()._repr_html_()
    assert "<script" not in shown
    assert shown.count("<img") == 1
    assert shown.count("<tr>") == 11
    assert Record({}, {}, {})._repr_html_().startswith("<p>")
    record = hostile()
    record.layers[0].state.counts["broken"][:] = 3
    table = findings(record)._repr_html_()
    assert "<script" not in table
    assert table.count("<tr>") == 1 + len(findings(record))
    assert "Nothing stands out" in findings(Record({}, {}, {}))._repr_html_()
    alike = comparison(hostile(), hostile(seed=1))._repr_html_()
    assert "<script" not in alike
    assert alike.count("<tr>") == 11
    assert comparison(hostile(), made_up())._repr_html_().count("<tr>") == 3


def test_a_model_beside_its_own_reference_is_explained():
    heads = [{"mean": 0.1, "rows": 9}, {"mean": 0.2, "rows": 9}]
    for name, twice in (
        ("embedded-plain", True),
        ("folder/embedded-plain/", True),
        ("mine", False),
    ):
        record: Any = SimpleNamespace(heads=heads, quick=False, model={"name": name})
        figure = standing_figure(record)
        assert figure is not None
        assert ("is there twice" in figure.meaning) == twice
