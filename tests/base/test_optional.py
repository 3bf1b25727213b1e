"""Optional packages that are missing: each is named, with the command that installs it."""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taut._base import optional as _optional
from taut._base.optional import MissingPackageError, install, missing, needing
from tests.helpers.places import ROOT

TREE = ROOT / "src" / "taut"
ALWAYS = {
    "taut", "numpy", "numba", "llvmlite", "array_api_compat", *sys.stdlib_module_names,
    "tomllib",  # of the standard library from Python 3.11 on
}  # fmt: skip
# Each of these packages asks for PyTorch when it is imported, and the command line for typer and
# rich (and tomli before Python 3.11); the text for rich's tables is made for the command line only.
NEED_TORCH = (
    "models", "networks", "audit", "control", "reproduce/seq2seq", "reproduce/lipschitz",
    "reproduce/early_warning",
)  # fmt: skip
COMMAND_LINE = ("cli", "_base/terminal_text.py")
# Reached with a model of transformers, a hook of accelerate, a tensor or an array of JAX only, or
# after models were loaded.
REACHED_LATER = {
    ("_softmax/jax_calls.py", "jax"),
    ("_softmax/jax_operators.py", "jax"),
    ("_softmax/jax_primitives.py", "jax"),
    ("_softmax/torch_function.py", "torch"),
    ("_softmax/torch_operator.py", "torch"),
    ("control", "transformers"),
    ("models", "accelerate"),
    ("models/_gpu_rows", "triton"),
    ("networks/onnx_files", "google"),
    ("networks/onnx_files", "onnx"),
    ("reproduce/experiments/figure_2.py", "torch"),
    ("reproduce/every_row.py", "torch"),
    ("reproduce/random_steps.py", "torch"),
    ("reproduce/row_bounds.py", "torch"),
}
DISTRIBUTION = {"PIL": "pillow", "vl_convert": "vl-convert-python"}


def extras() -> dict[str, str]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    part = text.split("[project.optional-dependencies]")[1].split("\n[project")[0]
    return dict(re.findall(r"^(\w+) = \[(.*?)\]$", part, flags=re.MULTILINE | re.DOTALL))


def guards(tree):
    """Imports in ``with needing(...)`` and the like, in ``try`` with ``except ImportError``, and
    for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            call = ast.unparse(node.items[0].context_expr)
            if re.match(r"_?(needing|for_training|for_scores)\(", call):
                yield from ((id(child), call) for child in ast.walk(node))
        if isinstance(node, ast.Try) and "ImportError" in ast.unparse(node.handlers):
            yield from ((id(child), "") for part in node.body for child in ast.walk(part))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from ((id(child), "") for part in node.body for child in ast.walk(part))


def optional_imports():
    for file in sorted(TREE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        guarded = dict(guards(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            for name in {name.split(".")[0] for name in names} - ALWAYS:
                yield file.relative_to(TREE), name, node, guarded.get(id(node))


def test_every_optional_import_says_what_to_install():
    allowed = {
        *((place, "torch") for place in NEED_TORCH),
        *((place, name) for place in COMMAND_LINE for name in ("rich", "typer", "tomli")),
        *REACHED_LATER,
    }
    bare, used = [], set()
    for file, name, node, guard in optional_imports():
        places = {file.as_posix(), *(parent.as_posix() for parent in file.parents)}
        found = {(place, name) for place in places} & allowed
        used |= found
        if guard is None and not found:
            bare.append(f"{file}:{node.lineno}: {name}")
    assert not bare
    assert {place for place, _ in allowed} == {place for place, _ in used}, "a place that is gone"


def test_the_extras_that_are_named_bring_what_is_missing():
    known = extras()
    seen = set()
    for file, name, node, call in optional_imports():
        call = {"_for_training()": "for_training()"}.get(call, call)
        if not call or "packages=" in call:
            continue
        named = {"for_training()": {"seq2seq", "torch"}, "for_scores()": {"seq2seq"}}.get(
            call, {text for text in re.findall(r"'(\w+)'", call) if text in known}
        )
        brought = "".join(known[extra] for extra in named)
        wanted = DISTRIBUTION.get(name, name.replace("_", "-"))
        through = {"safetensors": "transformers", "markupsafe": "jinja2"}  # which depend on them
        assert named, f"{file}:{node.lineno}"
        assert f'"{wanted}' in brought or f'"{through.get(name)}' in brought, (
            f"{file}:{node.lineno}"
        )
        seen.add(name)
    assert {"torch", "transformers", "datasets", "jinja2", "altair", "sacrebleu", "gguf"} <= seen


def test_the_command_is_for_where_the_user_is(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert install("torch", "cli", "torch") == 'pip install -c constraints.txt -e ".[cli,torch]"'
    assert install(packages="pandas") == "pip install -c constraints.txt pandas"
    monkeypatch.chdir(tmp_path)
    pins = ROOT / "constraints.txt"
    assert install("cli") == f'pip install -c "{pins}" -e "{ROOT}[cli]"'
    monkeypatch.setattr(_optional, "_checkout", lambda: None)
    assert install("cli", "torch") == 'pip install "taut[cli,torch]"'
    assert install(packages="pandas") == "pip install pandas"


@pytest.mark.parametrize("sources", [True, False])
def test_an_installed_copy_knows_the_folder_it_came_from(monkeypatch, tmp_path, sources):
    (tmp_path / "my taut" / "src" / "taut").mkdir(parents=True)
    folder = tmp_path / "my taut"
    if sources:
        (folder / "pyproject.toml").touch()
        (folder / "constraints.txt").touch()

    class Installed:
        def read_text(self, name):
            assert name == "direct_url.json"
            return f'{{"url": "{folder.as_uri()}", "dir_info": {{}}}}'

    monkeypatch.setattr(_optional, "__file__", str(tmp_path / "a/b/c/d/optional.py"))
    monkeypatch.setattr(_optional.metadata, "distribution", lambda name: Installed())
    monkeypatch.chdir(folder)
    found = 'pip install -c constraints.txt ".[cli]"' if sources else 'pip install "taut[cli]"'
    assert install("cli") == found


QUOTED = [
    (ModuleNotFoundError("No module named 'jinja2'", name="jinja2"), r"^reports need jinja2: pip"),
    (
        ImportError("cannot load x", name="jinja2"),
        r"jinja2 \(cannot load x\): pip",
    ),
    (ModuleNotFoundError("No module named 'm'", name="m"), r"jinja2 \(No module named 'm'\): pip"),
]


@pytest.mark.parametrize(("error", "words"), QUOTED)
def test_a_package_that_is_there_and_fails_is_quoted(error, words):
    with pytest.raises(MissingPackageError, match=words), needing("reports need jinja2", "report"):
        raise error


def test_the_error_passes_between_processes():
    error = pickle.loads(pickle.dumps(missing("reports need jinja2", "report")))
    assert (error.what, error.extras) == ("reports need jinja2", ("report",))
    assert str(error).startswith("reports need jinja2: pip install")


def hidden(code: str, *names: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run code in a process without some packages."""
    hide = f"import sys\nfor name in {names}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", hide + code], cwd=folder, capture_output=True, text=True, timeout=300
    )


COMMAND = "sys.argv = ['taut', *{}]\nfrom taut.cli import main\nmain()"
WITHOUT_TORCH = {
    "audit x --data y": ".[cli,hf,report,torch]",
    "certify x --inputs y": ".[cli,hf,torch]",
    "report x.json": ".[cli,report,torch]",
    "compare x.json y.json": ".[cli,report,torch]",
    "ls x": ".[cli,report,torch]",
    "reproduce figure-1": ".[cli,data,hf,plot,torch]",
    "reproduce theorem-2": ".[cli,data,hf,plot,torch]",
    "reproduce translation": ".[cli,data,hf,plot,seq2seq,torch]",
    "reproduce dialogue": ".[cli,data,hf,plot,seq2seq,torch]",
}


@pytest.mark.parametrize("command", WITHOUT_TORCH)
def test_commands_without_pytorch(command):
    pytest.importorskip("typer")
    done = hidden(COMMAND.format(command.split()), "torch")
    assert done.returncode == 2
    mend = f'pip install -c constraints.txt -e "{WITHOUT_TORCH[command]}"'
    assert done.stderr.strip().endswith(mend), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_command_line_without_its_packages():
    for name in ("typer", "rich"):
        done = hidden(COMMAND.format(["game"]), name)
        assert done.returncode == 1
        assert done.stderr.strip().endswith('pip install -c constraints.txt -e ".[cli]"')


@pytest.mark.parametrize("package", ["models", "networks", "audit", "control", "reproduce.seq2seq"])
def test_packages_without_pytorch(package):
    first = package.split(".")[0]
    done = hidden(f"import taut; taut.{first}; import taut.{package}", "torch")
    assert re.search(r"MissingPackageError: .*PyTorch.*: pip install .*torch\]\"", done.stderr)


def test_games_without_altair(tmp_path):
    pytest.importorskip("typer")
    (tmp_path / "game.csv").write_text("1,-1\n-1,2\n")
    command = COMMAND.format(
        ["game", str(tmp_path / "game.csv"), "--temperature", "1", "--plot", "a.svg"]
    )
    for name in ("altair", "vl_convert"):
        done = hidden(command, name)
        assert done.returncode == 2
        assert done.stderr.strip().endswith('-e ".[cli,plot]"')


def test_models_and_inputs_without_their_packages(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from taut.models._data_files.images import normalised_images
    from taut.models.load import load
    from taut.models.tokenizer import tokenizer_of

    def without(name, call, words):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(MissingPackageError, match=words):
                call()

    without("transformers", lambda: load("a/b"), r"transformers: pip .*\[hf\]")
    without("transformers", lambda: tokenizer_of("a/b"), r"transformers: pip .*\[hf\]")
    without(
        "PIL", lambda: normalised_images(["x.png"], (2, 2), [0.0], [1.0]), r"Pillow.*: pip .*\[hf\]"
    )
    pytest.importorskip("transformers")
    (tmp_path / "small.gguf").touch()
    without("gguf", lambda: load(str(tmp_path / "small.gguf")), r"gguf: pip .*\[hf\]")
    from taut.audit import Record

    record = Record({}, {}, {}, [], 0, True, [], {}, None, {})
    without("pandas", record.to_pandas, r"needs pandas: pip install .*pandas")
    assert torch
