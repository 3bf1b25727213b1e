"""Names, tokens and messages of others cannot steer the terminal that they are shown on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import taut
from tests.helpers import command_line

EVIL = "[red]x[/red]\x1b[31m\x1b]0;title\x07\u202egnp\u2066\x9b2J\r\n[link=http://a.b]y[/link]"
SHOWN = r"[red]x[/red]\x1b[31m\x1b]0;title\x07\u202egnp\u2066\x9b2J\r\n[link=http://a.b]y[/link]"


def quiet(text):
    """Nothing in what was printed that a terminal does not print."""
    wrong = {c for c in text if not c.isprintable() and c != "\n"}
    assert not wrong, (wrong, text)
    return text


def test_what_is_printable():
    from taut._base.terminal_text import cells, printable, shortened

    assert printable(EVIL) == SHOWN
    assert (
        printable("Ä – 日本 \U0001f469\u200d\U0001f680 ½")
        == "Ä – 日本 \U0001f469\u200d\U0001f680 ½"
    )
    assert printable("\udc80") == r"\udc80"
    assert shortened("a" * 50 + "b", 10) == "aaaa…aaaab"
    (cell,) = cells(EVIL)
    assert cell.plain == SHOWN
    assert not cell.spans


@pytest.fixture(scope="module")
def record():
    torch = pytest.importorskip("torch")
    from taut import audit

    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(4)]
    found = audit.run(torch.nn.Sequential(*layers).eval(), [torch.randn(3, 5, 8)], name=EVIL)
    for layer in found.layers:
        layer.path += EVIL
        layer.state.maxima["range"][:] = 194.0
    found.tokens = {f"{layer.name}/{h}": EVIL for layer in found.layers for h in range(2)}
    found.missed = [(EVIL, EVIL)]
    found.data = {"kind": "text", "source": EVIL, "column": EVIL, "notes": [EVIL], "samples": 3}
    found.settings = {"tokenizer": EVIL}
    return found


def test_records(record, tmp_path, capsys):
    from taut.audit import write_report
    from taut.cli.comparison_table import show_comparison
    from taut.cli.ls import show_folder
    from taut.cli.record_table import show_record

    show_record(record, 10)
    assert "[red]x[/red]" in quiet(capsys.readouterr().out)
    files = [tmp_path / "[bold]a\x1b[32m.json", tmp_path / "b.json"]
    for file in files:
        record.save(file)
    (tmp_path / "\x1b[35m.json").write_text(json.dumps({"taut_audit": 3}))
    show_folder(tmp_path)
    show_comparison(files, 10, as_json=False)
    show_comparison(files, 10, as_json=True)
    out = quiet(capsys.readouterr().out)
    assert r"[bold]a\x1b[32m" in out
    write_report(record, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    quiet(page)
    assert "<title>" in page
    assert "[red]x[/red]" in page


def test_commands(record, tmp_path):
    record.save(tmp_path / "a\x1b[31m.json")
    for arguments in (
        ("ls", "."), ("ls", "none\x1b[31m"), ("compare", "a\x1b[31m.json", "a\x1b[31m.json"),
        ("report", "a\x1b[31m.json"), ("report", "none\x1b[31m.json"), ("game", "none\x1b[31m.csv"),
        ("audit", "mine\x1b[31m:model", "--data", "x"),
        ("reproduce", "figure-1", "--model", "\x1b"),
        ("certify", "none\x1b[31m", "--inputs", "x"),
    ):  # fmt: skip
        done = command_line.taut(*arguments, cwd=tmp_path, COLUMNS="500")
        quiet(done.stdout + done.stderr)
        assert "Traceback" not in done.stderr
    (tmp_path / "options.toml").write_text('"\\u001b[31m" = 1\n')
    wrong = command_line.taut("audit", "--config", "options.toml", cwd=tmp_path)
    assert wrong.returncode == 2
    quiet(wrong.stderr)


def test_games(tmp_path):
    names = ["[red]a[/red]", "b\x1b[31m"]
    (tmp_path / "a.json").write_text(json.dumps({"A": [[1, 0], [0, 1]], "rows": names}))
    done = command_line.taut("game", "a.json", "--temperature", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[red]a[/red]" in quiet(done.stdout)
    assert r"b\x1b[31m" in done.stdout
    (tmp_path / "b.json").write_text(json.dumps({"A": [[1, 0]], "\x1b[31m": 1}))
    wrong = command_line.taut("game", "b.json", "--temperature", "1", cwd=tmp_path)
    assert wrong.returncode == 2
    quiet(wrong.stderr)


def test_results_of_experiments(tmp_path, capsys):
    pytest.importorskip("altair")
    from taut.cli.experiment_results import show_result
    from taut.reproduce import Claim, Result, ResultTable

    found = Result("name", EVIL, {"model": EVIL}, [Claim(EVIL, EVIL, EVIL, True)])
    show_result(found, tmp_path, "taut")
    show_result(
        Result("name", EVIL, {}, [], [ResultTable(EVIL, [EVIL], [[EVIL]])]), tmp_path, "taut"
    )
    assert "[red]x[/red]" in quiet(capsys.readouterr().out)


def test_whatever_is_printed_goes_through_one_door():
    """JSON, which writes control characters out itself, and text of our own are the exceptions."""
    source = Path(taut.__file__).parent
    plain = (
        r"print\((json(_text)?\.dumps|record\.to_json|printable\(str)"
        r"|console\.print|Console\(.*\)\.print"
    )
    for file in source.rglob("*.py"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if re.search(r"\bprint\(", line) and not line.lstrip().startswith((">>>", "...")):
                assert re.search(plain, line), f"{file}: {line}"
