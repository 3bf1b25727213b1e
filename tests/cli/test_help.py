"""The command line starts at once, and its defaults are those of the library."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

pytest.importorskip("typer")
from taut._base.settings import AuditSettings, ModelSettings
from taut.cli.audit import audit
from taut.cli.certify import certify
from taut.cli.options import comma_separated
from tests.helpers.command_line import taut

COMMANDS = (
    "audit",
    "report",
    "compare",
    "ls",
    "merge",
    "certify",
    "game",
    "branches",
    "explore",
    "reproduce",
    "env",
)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['taut', *{}]\n"
        "from taut.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {{'torch', 'transformers', 'numba', 'scipy', 'jinja2', 'altair'}}\n"
        "heavy &= {{*sys.modules}}\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    for words in (["--help"], ["audit", "--help"], ["certify", "--help"]):
        subprocess.run(
            [sys.executable, "-c", code.format(words)], check=True, stdout=subprocess.DEVNULL
        )


@pytest.mark.parametrize(
    "command", [*COMMANDS, "reproduce figure-1", "reproduce all", "reproduce translation",
                "reproduce dialogue"]
)  # fmt: skip
def test_every_command_has_help_and_two_examples(command):
    done = taut(*command.split(), "-h")
    assert done.returncode == 0
    assert done.stdout == taut(*command.split(), "--help").stdout
    before, _, shown = done.stdout.partition("Examples:")
    examples = [line.strip() for line in shown.splitlines() if line.strip()]
    assert len(examples) >= 2
    assert all(example.startswith(f"taut {command}") for example in examples)
    assert "Show this help." in before
    for raw in ("<bool>", "<str>", "<int", "<path>", "list[", "PATH", "TEXT "):
        assert raw not in before, "values are named in words"


def test_help_of_an_experiment_is_its_own():
    from taut.reproduce import EXPERIMENTS

    for name, says, unused in (
        ("theorem-3", "The double softmax contracts (Nair 2025).", "--model"),
        ("certified-vit", "A vision transformer trained under a certificate.", "--scales"),
    ):
        words = " ".join(taut("reproduce", name, "-h").stdout.partition("Options")[0].split())
        assert says in words
        used = words.partition("Uses ")[2].partition(";")[0]
        assert all(f"--{option}" in used for option in ("quick", *EXPERIMENTS[name].takes))
        assert unused not in used


def test_commands_are_in_the_order_of_use():
    listed = [
        line.split()[1] for line in taut("-h").stdout.partition("Commands")[2].splitlines()
        if line.startswith("│") and line[2] != " "
    ]  # fmt: skip
    assert listed == [name for name in listed if name in COMMANDS or name == "explore"]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)


def test_paragraphs_of_help_are_not_broken():
    from taut.cli.help import in_paragraphs

    assert in_paragraphs("One line\nand more.\n\nAnother.") == "One line and more.\n\nAnother."


@pytest.mark.parametrize(
    ("command", "settings"), [(audit, AuditSettings), (certify, ModelSettings)]
)
def test_defaults_are_those_of_the_library(command, settings):
    """Each option that is a setting has its default, so that nobody must keep two in step."""
    known = {field.name: field.default for field in dataclasses.fields(settings)}
    known["p"] = comma_separated(AuditSettings.norms)
    known["epsilons"] = comma_separated(AuditSettings.epsilons)
    known["logits"] = False  # an option without a value; --scale is its value
    compared = 0
    for name, parameter in inspect.signature(command).parameters.items():
        if name in known and name not in ("inputs", "shape"):
            assert parameter.default == known[name], name
            compared += 1
    assert compared > 8


def test_defaults_of_translation_are_those_of_a_recipe():
    pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from taut.cli.reproduce_training import translation
    from taut.reproduce.seq2seq import Recipe

    given = {name: each.default for name, each in inspect.signature(translation).parameters.items()}
    usual = {field.name: getattr(Recipe(), field.name) for field in dataclasses.fields(Recipe)}
    shared = (set(given) & set(usual)) - {"longest"}  # which depends on the kind of tokens
    assert len(shared) > 8
    assert {name: given[name] for name in shared} == {name: usual[name] for name in shared}
