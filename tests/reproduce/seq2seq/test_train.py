"""Training of translators: it learns, goes on exactly, and every constraint does its work."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("tensorboard", reason="tensorboard is not installed")

from taut.reproduce.seq2seq import training  # noqa: E402
from taut.reproduce.seq2seq.batches import encoded, endless, grouped, tensors  # noqa: E402
from taut.reproduce.seq2seq.corpus import Corpus  # noqa: E402
from taut.reproduce.seq2seq.methods import Method, constrained  # noqa: E402
from taut.reproduce.seq2seq.models import SIZES, Size, build  # noqa: E402
from taut.reproduce.seq2seq.optimiser_step import OptimiserStep  # noqa: E402
from taut.reproduce.seq2seq.queue import _mine, folder_of, run_all  # noqa: E402
from taut.reproduce.seq2seq.recipe import Recipe  # noqa: E402
from taut.reproduce.seq2seq.run import run  # noqa: E402
from taut.reproduce.seq2seq.stopping import Stopped  # noqa: E402
from taut.reproduce.seq2seq.subwords import END, PAD, Subwords  # noqa: E402
from taut.reproduce.seq2seq.train import train  # noqa: E402
from taut.reproduce.seq2seq.training import Data  # noqa: E402
from taut.reproduce.seq2seq.training_log import lines  # noqa: E402
from tests.helpers.places import ROOT  # noqa: E402

METHODS = ("base", "VAR-I=1e-3", "VAR-III=1e-3", "local=1", "cap=0.2", "cosine")


SIZES |= {"test": Size(2, 32, 64, 2, 0.1), "sure": Size(2, 32, 64, 2, 0.0)}


@pytest.fixture(autouse=True)
def one_thread():
    """So that sums are in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def copies(count, seed=0):
    """Pairs of numbers: a row of letters and the same row."""
    source = random.Random(seed)
    rows = [[source.randrange(3, 13) for _ in range(source.randrange(2, 7))] for _ in range(count)]
    return [([*row, END], [*row, END]) for row in rows]


DATA = Data(copies(400), copies(50, seed=1))
RECIPE = Recipe(size="test", steps=12, every=4, pieces=200, longest=10, warmup=4, rate=5e-3)


def new_model(recipe=RECIPE):
    return build(recipe.size, 13, longest=recipe.longest, family=recipe.family, seed=recipe.seed)


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, two):
    return all(torch.equal(one[name], two[name]) for name in one)


def test_batches_hold_every_pair_once():
    pairs = copies(100)
    batches = grouped(pairs, 60, seed=3)
    assert sorted(i for batch in batches for i in batch) == list(range(100))
    for batch in batches:
        assert len(batch) * max(len(side) for i in batch for side in pairs[i]) <= 60
    assert batches == grouped(pairs, 60, seed=3) != grouped(pairs, 60, seed=4)
    assert grouped([([1] * 99, [1])], 60) == [[0]]  # one that is too long is alone


def test_batches_go_on_anywhere():
    pairs = copies(30)
    stream = endless(pairs, 50, seed=1)
    first = [next(stream) for _ in range(40)]
    for start in (0, 1, 7, 39):
        again = endless(pairs, 50, 1, start)
        assert [next(again) for _ in range(40 - start)] == first[start:]


def test_tensors():
    batch = tensors([([5, 6, END], [7, END]), ([5, END], [8, 9, END])], [0, 1])
    assert batch["input_ids"].tolist() == [[5, 6, 1], [5, 1, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["decoder_input_ids"].tolist() == [[PAD, 7, 1], [PAD, 8, 9]]
    assert batch["decoder_attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[7, 1, -100], [8, 9, 1]]


NIGHT = [pytest.param(name, 500, 0.5, 0.5, marks=pytest.mark.slow) for name in ("marian", "bart")]


@pytest.mark.parametrize(("family", "steps", "share", "most"), [("marian", 150, 0.8, 1.8), *NIGHT])
def test_a_model_learns_to_copy(family, steps, share, most, tmp_path):
    recipe = replace(
        RECIPE, size="sure", family=family, steps=steps, every=steps // 2, warmup=50, pieces=400
    )
    model = new_model(recipe)
    progress = train(model, DATA, recipe, tmp_path)
    log = lines(tmp_path / "log.jsonl")
    losses = [line["loss"] for line in log if "loss" in line]
    assert losses[-1] < share * losses[0]
    assert progress.best < most
    assert {"gradient", "rate"} <= set(log[0]) | set(log[1]) | set(log[2])
    assert any("largest_constant" in name for line in log for name in line)
    assert any(path.name.startswith("events") for path in (tmp_path / "tensorboard").iterdir())


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_was_killed_is_the_same_run(method, tmp_path, monkeypatch):
    """From the last checkpoint on, every number is that of a run in one go."""
    recipe = replace(RECIPE, method=Method.parse(method))
    monkeypatch.setattr(training, "LOG_EVERY", 1)
    model = new_model()
    train(model, DATA, recipe, tmp_path / "whole")

    class KilledError(Exception):
        pass

    steps = []
    real = OptimiserStep.take

    def take(self, batches, **given):
        if len(steps) == 7:  # two steps after the last checkpoint, which is lost
            raise KilledError
        steps.append(1)
        return real(self, batches, **given)

    monkeypatch.setattr(training, "SAVE_EVERY", 1e9)
    monkeypatch.setattr(OptimiserStep, "take", take)
    broken = new_model()
    with pytest.raises(KilledError):
        train(broken, DATA, recipe, tmp_path / "parts")
    monkeypatch.setattr(OptimiserStep, "take", real)
    torch.manual_seed(99)
    second = new_model(replace(recipe, seed=5))  # its weights come from the checkpoint
    progress = train(second, DATA, recipe, tmp_path / "parts")
    assert same(weights(model), weights(second))
    assert progress.step == 12
    whole, parts = (lines(tmp_path / name / "log.jsonl") for name in ("whole", "parts"))
    for line in (*whole, *parts):
        line.pop("step_seconds", None)
    assert whole == parts
    assert [p.name for p in (tmp_path / "parts").glob("checkpoint-*")] == ["checkpoint-12"]


def test_measurements_come_when_they_would(tmp_path, monkeypatch):
    """A run that goes on between two of them adds none."""
    recipe = replace(RECIPE, every=6)
    train(new_model(), DATA, recipe, tmp_path / "whole")
    monkeypatch.setattr(training, "SAVE_EVERY", 0.0)
    train(new_model(), DATA, replace(recipe, steps=4), tmp_path / "parts")
    log = tmp_path / "parts" / "log.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))  # its last validation
    state = torch.load(next((tmp_path / "parts").glob("checkpoint-*/custom_checkpoint_0.pkl")))
    train(new_model(), DATA, recipe, tmp_path / "parts")
    measured = [
        [line["step"] for line in lines(tmp_path / name / "log.jsonl")
         if any("largest_score" in key for key in line)]
        for name in ("whole", "parts")
    ]  # fmt: skip
    assert measured == [[0, 6], [0, 6]]
    assert state["step"] == 4


def test_the_best_weights_are_those_of_the_checkpoint(tmp_path, monkeypatch):
    """A better validation after the last checkpoint does not replace them."""
    monkeypatch.setattr(training, "save", lambda *_: None)  # killed before every checkpoint
    recipe = replace(RECIPE, steps=8)
    train(new_model(), DATA, recipe, tmp_path)
    monkeypatch.undo()
    assert {p.name for p in tmp_path.glob("best-*")} == {"best-4", "best-8"}
    progress = train(new_model(), DATA, recipe, tmp_path)
    assert [p.name for p in tmp_path.glob("best-*")] == [f"best-{progress.best_step}"]


def test_constraints_change_the_run(tmp_path):
    """Each of them, and the cap holds to the last step."""
    found = {}
    for method in METHODS:
        model = new_model()
        train(model, DATA, replace(RECIPE, method=Method.parse(method)), tmp_path / method)
        found[method] = weights(model)
        if method == "cap=0.2":
            from taut.control import find_blocks

            maps = [w.matrix() for b in find_blocks(model) for w in b.weights.values()]
            assert max(float(torch.linalg.matrix_norm(m.detach(), 2)) for m in maps) <= 0.2
    names = list(found)
    assert not any(same(found[a], found[b]) for a in names for b in names if a < b)


@pytest.mark.parametrize(
    ("method", "name"), [("VAR-III=1e-3", "orthogonality"), ("local=1", "local_constant")]
)
def test_the_log_tells_the_loss_from_the_penalty(method, name, tmp_path, monkeypatch):
    """``loss`` is the task's; with the penalty, as it is added, it is what gradients are of."""
    from accelerate import Accelerator
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    real, given = Accelerator.backward, []

    def backward(self, loss, **options):
        given.append(float(loss.detach()))
        real(self, loss, **options)

    monkeypatch.setattr(Accelerator, "backward", backward)
    monkeypatch.setattr(training, "LOG_EVERY", 1)
    recipe = replace(RECIPE, accumulate=2, steps=4)
    train(new_model(), DATA, recipe, tmp_path / "base")
    given.clear()
    train(new_model(), DATA, replace(recipe, method=Method.parse(method)), tmp_path / "method")
    plain, log = (
        [line for line in lines(tmp_path / folder / "log.jsonl") if "loss" in line]
        for folder in ("base", "method")
    )
    assert log[0]["loss"] == plain[0]["loss"]
    assert len(log) == 4
    for line, first, second in zip(log, given[::2], given[1::2], strict=True):
        parts = {key: value for key, value in line.items() if key.startswith("penalty/")}
        assert set(parts) == {f"penalty/{name}"}
        assert parts[f"penalty/{name}"] > 0
        assert line["loss"] + sum(parts.values()) == pytest.approx(first + second, rel=1e-5)
    assert any(key.startswith("values/") for key in log[0])  # by part or layer, without a strength
    board = EventAccumulator(str(tmp_path / "method" / "tensorboard")).Reload()
    for key in ("loss", f"penalty/{name}"):
        found = [event.value for event in board.Scalars(key)]
        assert found == pytest.approx([line[key] for line in log], rel=1e-6)


@pytest.mark.parametrize("method", ["VAR-III=1e-3", "local=1"])
def test_steps_are_those_of_a_loop_by_hand(method, tmp_path):
    """Bit by bit: what is logged changes nothing in what is trained."""
    from transformers import get_inverse_sqrt_schedule

    recipe = replace(RECIPE, size="sure", steps=5, method=Method.parse(method), accumulate=2)
    model, byhand = new_model(recipe), new_model(recipe).train()
    train(model, DATA, recipe, tmp_path)
    optimizer = torch.optim.Adam(byhand.parameters(), lr=recipe.rate, betas=(0.9, 0.98), eps=1e-9)
    schedule = get_inverse_sqrt_schedule(optimizer, recipe.warmup)
    (penalty,) = constrained(byhand, optimizer, recipe.method, recipe.seed)
    batches = endless(DATA.train, recipe.pieces, recipe.seed)
    for _ in range(recipe.steps):
        for _ in range(2):
            batch = tensors(DATA.train, next(batches))
            labels = batch.pop("labels").flatten()
            logits = byhand(**batch).logits.flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(
                logits, labels, ignore_index=-100, label_smoothing=recipe.smoothing
            )
            ((loss + penalty.penalty()) / 2).backward()
        torch.nn.utils.clip_grad_norm_(byhand.parameters(), recipe.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    penalty.bake()
    assert same(weights(model), weights(byhand))


def test_validation_and_the_best_weights_are_of_the_task(tmp_path):
    """A penalty as large as a hundred losses is not in the loss that ends a run."""
    from transformers import AutoModelForSeq2SeqLM

    recipe = replace(RECIPE, method=Method.parse("VAR-III=1"), steps=8)
    progress = train(new_model(), DATA, recipe, tmp_path)
    log = lines(tmp_path / "log.jsonl")
    assert next(line["penalty/orthogonality"] for line in log if "loss" in line) > 100
    best = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / f"best-{progress.best_step}").eval()
    batch = tensors(DATA.valid, range(len(DATA.valid)))
    with torch.no_grad():
        expected = float(best(**batch).loss)
    assert progress.best == pytest.approx(expected, rel=1e-5)
    assert progress.best == min(line["valid/loss"] for line in log if "valid/loss" in line)


def test_a_penalty_that_is_not_a_number_ends_the_run(tmp_path, monkeypatch):
    """Also one without a gradient, as the value itself says that something broke."""
    from taut.control import Orthogonality

    real = Orthogonality.penalty
    monkeypatch.setattr(Orthogonality, "penalty", lambda self: real(self) + math.inf)
    recipe = replace(RECIPE, method=Method.parse("VAR-III=1e-3"))
    with pytest.raises(FloatingPointError, match=r"penalty/orthogonality inf .* at step 1"):
        train(new_model(), DATA, recipe, tmp_path)


def test_early_stopping_and_the_best_weights(tmp_path, monkeypatch):
    losses = iter([3.0, 2.0, 2.5, 2.6, 2.7, 1.0])
    monkeypatch.setattr(
        OptimiserStep, "loss",
        lambda self, batch, smoothing, reduction: _fake(self, batch, smoothing, losses),
    )  # fmt: skip
    recipe = replace(RECIPE, steps=100, every=2, patience=3)
    model = new_model()
    progress = train(model, Data(DATA.train, DATA.valid[:1]), recipe, tmp_path)
    assert (progress.step, progress.best, progress.best_step) == (10, 2.0, 4)
    best = type(model).from_pretrained(tmp_path / "best-4")
    assert not same(weights(best), weights(model))


def _fake(run, batch, smoothing, losses):
    if smoothing:
        given = {name: value for name, value in batch.items() if name != "labels"}
        return run.model(**given).logits.square().mean()
    return torch.tensor(next(losses) * int((batch["labels"] != -100).sum()))


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path, monkeypatch):
    real = OptimiserStep.loss
    monkeypatch.setattr(OptimiserStep, "loss", lambda self, *given: real(self, *given) * math.nan)
    model = new_model()
    first = weights(model)
    with pytest.raises(FloatingPointError, match="at step 1"):
        train(model, DATA, RECIPE, tmp_path)
    assert same(first, weights(model))  # nothing of it was taken in


def test_a_strength_that_breaks_gradients_ends_the_run(tmp_path):
    recipe = replace(RECIPE, method=Method.parse("VAR-III=1e38"))
    with pytest.raises(FloatingPointError, match=r"gradient (inf|nan) at step 1"):
        train(new_model(), DATA, recipe, tmp_path)


def test_accumulation(tmp_path):
    """Two halves of a step are the step, up to rounding: here, twice the same batches."""
    recipe = replace(RECIPE, accumulate=2, steps=4)
    progress = train(new_model(), DATA, recipe, tmp_path)
    assert progress.step == 4
    assert math.isfinite(progress.best)


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    from accelerate import Accelerator

    real = Accelerator.save_state
    saved = []

    def full(self, place, **options):
        if saved:
            Path(place).mkdir()
            raise OSError(28, "No space left on device")
        saved.append(place)
        return real(self, place, **options)

    monkeypatch.setattr(Accelerator, "save_state", full)
    with pytest.raises(OSError, match="goes on from the last one"):
        train(new_model(), DATA, RECIPE, tmp_path)
    assert [p.name for p in tmp_path.glob("checkpoint-*")] == [Path(saved[0]).name]
    monkeypatch.setattr(Accelerator, "save_state", real)
    assert train(new_model(), DATA, RECIPE, tmp_path).step == 12


def test_ways():
    assert str(Method.parse("VAR-III=1e-6")) == "VAR-III, 1e-06"
    assert Method.parse("cap") == Method("cap", 2.0)
    for wrong, said in (
        ("VAR-IV=1", "no method"), ("VAR-I", "needs a number"), ("base=1", "takes no number"),
        ("cap=-1", "above 0"), ("cap=x", "not a number"), ("local=nan", "above 0"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            Method.parse(wrong)
    for wrong in ({"steps": 0}, {"rate": -1.0}, {"smoothing": 1.0}, {"precision": "fp8"}):
        with pytest.raises(ValueError, match="must be"):
            Recipe(**wrong)
    for wrong in ({"size": "huge"}, {"family": "t5"}):
        with pytest.raises(ValueError, match="must be one of"):
            build(**{"size": "tiny", "pieces": 20, "longest": 8, **wrong})


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters"])
def test_subwords_come_back(kind, tmp_path):
    texts = ["Ein  Hund läuft über die Straße.", "A dog runs across the street.", "Größe: 12 €"] * 9
    pieces = Subwords.learn(texts, kind, 60)
    rows = pieces.encode(texts, 100)
    assert pieces.decode(rows) == [" ".join(text.split()) for text in texts]
    assert all(row[-1] == END and END not in row[:-1] for row in rows)
    assert [len(row) for row in pieces.encode(texts, 5)] == [5] * 27
    if kind == "characters":
        assert len(rows[1]) > len(texts[1])
    pieces.save(tmp_path / "pieces.json")
    again = Subwords.load(tmp_path / "pieces.json")
    assert again.encode(texts, 100) == rows
    assert pieces.decode([[END], [PAD, 4, END, 5]])[0] == ""
    with pytest.raises(ValueError, match="one of bpe"):
        Subwords.learn(texts, "words")
    with pytest.raises(ValueError, match="no text"):
        Subwords.learn([], kind)


def letters(count):
    source = random.Random(7)
    texts = [" ".join(source.choices("abcdefgh", k=source.randrange(2, 6))) for _ in range(count)]
    return [(text, text.upper()) for text in texts]


def share(answers, references):
    right = sum(a == b for a, b in zip(answers, references, strict=True)) / len(answers)
    return {"headline": f"{right:.2f}", "right": right}


CORPUS = Corpus("letters", "small", "large", letters(300), letters(40), letters(20))
SHORT = replace(RECIPE, steps=6, every=3, longest=16, vocabulary=40)


def test_a_whole_run_is_done_once(tmp_path):
    facts = run(CORPUS, SHORT, tmp_path, share, {"more": letters(4)})
    assert set(facts["scores"]) == {"test", "more"}
    assert len((tmp_path / "answers-test.txt").read_text().splitlines()) == 20
    assert facts["scores"]["more"]["examples"][0][:2] == list(letters(4)[0])
    assert {"AM", "LA", "LF", "sigma_max", "constant_mean"} <= set(facts["after"])
    assert 0 < facts["after"]["constant_mean"] <= facts["after"]["constant_largest"] <= 0.5
    assert facts["pairs"] == [300, 40, 20]
    (tmp_path / "log.jsonl").unlink()
    assert run(CORPUS, SHORT, tmp_path, share) == facts
    # A test that is asked for later is answered by the same weights.
    later = run(CORPUS, SHORT, tmp_path, share, {"again": CORPUS.test, "more": letters(4)})
    assert later["scores"]["again"] == facts["scores"]["test"]
    assert {k: v for k, v in later.items() if k != "scores"} == {
        k: v for k, v in facts.items() if k != "scores"
    }
    _facts_that_were_changed_are_refused(tmp_path, later)


def _facts_that_were_changed_are_refused(folder, facts):
    file = folder / "facts.json"
    text = file.read_text()
    loss = repr(facts["valid_loss"])
    file.write_text(text.replace(loss, f"{loss[:-2]}1"))
    with pytest.raises(ValueError, match=r"facts\.json was damaged, or edited by hand"):
        run(CORPUS, SHORT, folder, share)
    file.write_text(text[:-9])
    with pytest.raises(ValueError, match=r"facts\.json cannot be read"):
        run(CORPUS, SHORT, folder, share)
    kept = json.loads(text)
    del kept["checksum of this file"]  # as runs from before there were checksums have it
    file.write_text(json.dumps(kept))
    assert run(CORPUS, SHORT, folder, share)["valid_loss"] == facts["valid_loss"]


def test_a_test_of_other_pairs_is_scored_anew(tmp_path):
    """Not only by its name: a file may have changed, or the scorer."""
    first = run(CORPUS, SHORT, tmp_path, share, {"more": letters(4)})
    other = run(CORPUS, SHORT, tmp_path, share, {"more": letters(5)})
    assert other["scores"]["more"]["examples"] != first["scores"]["more"]["examples"]
    assert other["scores"]["test"] == first["scores"]["test"]

    def none(made, references):
        return {"headline": "none"}

    assert run(CORPUS, SHORT, tmp_path, none)["scores"]["test"]["headline"] == "none"


def test_cosine_attention_is_measured_before_and_after(tmp_path):
    """As it is trained: not the attention that it replaces."""
    cosine = run(CORPUS, replace(SHORT, method=Method.parse("cosine")), tmp_path / "cosine", share)
    plain = run(CORPUS, SHORT, tmp_path / "plain", share)
    expected = {"LA", "LF", "sigma_max", "constant_mean", "constant_largest"}
    assert set(cosine["before"]) == set(cosine["after"]) == expected
    assert cosine["before"]["LA"] == plain["before"]["LA"]
    assert cosine["before"]["constant_mean"] != plain["before"]["constant_mean"]


def test_the_folder_of_another_run_is_refused(tmp_path):
    facts = run(CORPUS, SHORT, str(tmp_path), share)
    for other, said in (
        ((CORPUS, replace(SHORT, steps=7)), "different steps"),
        ((CORPUS, replace(SHORT, method=Method.parse("cap=1"), seed=1)), "different method, seed"),
        ((replace(CORPUS, test=CORPUS.test[1:]), SHORT), "different data"),
        ((replace(CORPUS, latest=True), SHORT), "different latest"),
    ):
        with pytest.raises(ValueError, match=said):
            run(*other, tmp_path, share)
        (tmp_path / "facts.json").rename(tmp_path / "kept")  # also before it is done
        with pytest.raises(ValueError, match=said):
            run(*other, tmp_path, share)
        (tmp_path / "kept").rename(tmp_path / "facts.json")
    assert run(CORPUS, SHORT, tmp_path, share) == facts


def test_what_is_answered_is_not_cut_off():
    """A context that is too long loses its first turns, and a source of translation its end."""
    pieces = Subwords.learn(["abcdefgh " * 3], "characters")
    whole = pieces.encode(["abcdefgh"], 16)[0]
    assert pieces.decode(pieces.encode(["abcdefgh"], 5)) == ["abc"]
    assert pieces.decode(pieces.encode(["abcdefgh"], 5, latest=True)) == ["efgh"]
    assert pieces.encode(["abcdefgh"], 16, latest=True)[0] == whole
    long = [("aaaaaaaaaa b", "B"), ("aaaaaaaaaa c", "C")]
    for latest, wrong in ((False, True), (True, False)):
        rows = encoded(pieces, [(a, b.lower()) for a, b in long], 8, latest=latest)
        assert (rows[0][0] == rows[1][0]) is wrong


def test_runs_cut_as_their_corpus_says(tmp_path, monkeypatch):
    """Sources of training, validation and test lose their beginnings, targets their ends."""
    seen, real = [], Subwords.encode

    def encode(self, texts, longest, *, latest=False):
        seen.append(latest)
        return real(self, texts, longest, latest=latest)

    monkeypatch.setattr(Subwords, "encode", encode)
    run(replace(CORPUS, latest=True), SHORT, tmp_path, share)
    assert seen == [True, False, True, False, True]


def test_fp16_is_not_said_where_it_is_not_done(tmp_path):
    with pytest.raises(ValueError, match="fp16 needs a GPU"):
        train(new_model(), DATA, replace(RECIPE, precision="fp16"), tmp_path)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"method": "VAR-I=1e-6"}, r"Method.parse\('VAR-I=1e-6'\)"),
        ({"steps": 1.5}, "steps must be an int"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"vocabulary": 5}, "vocabulary must be at least 16"),
        ({"size": "huge"}, "size must be one of tiny"),
        ({"family": "gpt"}, "family must be one of marian"),
        ({"tokens": "word"}, "tokens must be one of bpe"),
        ({"rate": math.nan}, "rate must be above 0"),
        ({"clip": 0}, "clip must be above 0"),
        ({"smoothing": 1.0}, "smoothing must be"),
    ],
)
def test_a_wrong_recipe_is_refused(wrong, said):
    with pytest.raises((TypeError, ValueError), match=said):
        Recipe(**wrong)


def test_a_wrong_way_is_refused():
    for name, number in (("nope", 0.3), ("VAR-I", None), ("base", 1.0), ("cap", -1.0),
                         ("local", math.nan)):  # fmt: skip
        with pytest.raises(ValueError, match=r"no method|needs a number|no number|above 0"):
            Method(name, number)
    assert Method.parse(" base ") == Method("base")


def test_runs_are_not_taken_for_others(monkeypatch):
    one = replace(SHORT, method=Method.parse("VAR-I=1.0000001"))
    two = replace(SHORT, method=Method.parse("VAR-I=1.0000002"))
    places = {folder_of(r, CORPUS, Path()) for r in (one, two, SHORT, replace(SHORT, rate=1e-3))}
    assert len(places) == 4
    other = replace(CORPUS, train=CORPUS.train[:-1])
    assert folder_of(SHORT, other, Path()) not in places
    alone = folder_of(SHORT, CORPUS, Path())
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert folder_of(SHORT, CORPUS, Path()) != alone


def test_a_queue_goes_on_and_keeps_what_broke_down(tmp_path, monkeypatch, capsys):
    recipes = [replace(SHORT, method=Method.parse(method), seed=seed)
               for method in ("base", "cosine") for seed in (0, 1)]  # fmt: skip
    broken = folder_of(recipes[1], CORPUS, tmp_path)
    real = training.Training._one

    def one(self, *given):
        if self.folder == broken:
            raise FloatingPointError("the loss is nan at step 1")
        return real(self, *given)

    monkeypatch.setattr(training.Training, "_one", one)
    found = run_all(recipes, CORPUS, tmp_path, share)
    assert [fact["recipe"]["seed"] for fact in found] == [0, 1, 0, 1]
    assert "nan" in found[1]["failed"]
    assert "AM" not in found[2]["after"]  # its attention is another function
    assert found[2]["after"]["LA"] > 0
    said = capsys.readouterr().out
    assert said.count("seed") == 4
    assert run_all(recipes, CORPUS, tmp_path, share) == found
    assert capsys.readouterr().out == f"4 of 4 runs are done, in {tmp_path}\n"
    with pytest.raises(ValueError, match="jobs"):
        run_all(recipes, CORPUS, tmp_path, share, jobs=0)


def test_a_run_that_another_works_on_is_left_to_it(tmp_path):
    with _mine(tmp_path / "facts.json") as mine:
        assert mine
        with _mine(tmp_path / "facts.json") as ours:
            assert not ours
    with _mine(tmp_path / "facts.json") as mine:
        assert mine


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from tests.reproduce.seq2seq import test_train as t
import torch
torch.set_num_threads(1)
from taut.reproduce.seq2seq import training
training.SAVE_EVERY = 0.0
print("ready", flush=True)
recipe = t.replace(t.RECIPE, steps=int(sys.argv[2]))
t.train(t.new_model(), t.DATA, recipe, t.Path(sys.argv[1]))
"""


TWO = """
import sys
sys.path.insert(0, {tests!r})
from tests.reproduce.seq2seq import test_train as t
import torch
torch.set_num_threads(1)
recipe = t.replace(t.RECIPE, size="sure", method=t.Method.parse(sys.argv[2]), steps=6, every=3)
model = t.new_model(recipe)
t.train(model, t.DATA, recipe, t.Path(sys.argv[1]))
facts = t.run(t.CORPUS, t.replace(t.SHORT, size="sure"), t.Path(sys.argv[1]) / "run", t.share)
assert facts["scores"]["test"]["examples"]
torch.save(model.state_dict(), f"{{sys.argv[1]}}/rank{{t.os.environ['RANK']}}.pt")
"""


@pytest.mark.slow
def test_two_processes_do_what_one_does(tmp_path):
    """Without dropout, a step of two processes is one of two batches that are accumulated."""
    method = "VAR-III=1e-3"
    script = tmp_path / "two.py"
    script.write_text(TWO.format(tests=str(ROOT)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
               "2", str(script), str(tmp_path / "two"), method]  # fmt: skip
    env = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    recipe = replace(
        RECIPE, size="sure", method=Method.parse(method), steps=6, every=3, accumulate=2
    )
    model = new_model(recipe)
    train(model, DATA, recipe, tmp_path / "one")
    first, second = (torch.load(tmp_path / "two" / f"rank{r}.pt") for r in (0, 1))
    assert same(first, second)
    for name, value in weights(model).items():
        torch.testing.assert_close(first[name], value, rtol=1e-3, atol=1e-5)
    assert not same(first, weights(new_model(recipe)))
    for key in ("valid/loss", "loss", "penalty/orthogonality", "values/AM"):
        one, two = (
            [line[key] for line in lines(tmp_path / name / "log.jsonl") if key in line]
            for name in ("one", "two")
        )
        assert one == pytest.approx(two, rel=1e-4)
        assert one


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_half_precision_without_onednn(tmp_path):
    """Without its instructions, which some machines do not have and end with SIGILL."""
    with torch.backends.mkldnn.flags(enabled=False):
        train(new_model(), DATA, replace(RECIPE, precision="bf16", steps=4), tmp_path)
    assert lines(tmp_path / "log.jsonl")[-1]["step"] == 4


@pytest.mark.slow
def test_half_precision(tmp_path):
    script = SCRIPT.format(tests=str(ROOT)).replace("steps=", "precision='bf16', steps=")
    command = [sys.executable, "-c", script, str(tmp_path), "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode == -signal.SIGILL:
        pytest.skip("this machine has no instructions for bf16 (oneDNN ends with SIGILL)")
    assert done.returncode == 0, done.stderr
    assert lines(tmp_path / "log.jsonl")[-1]["step"] == 4


def test_a_signal_ends_a_run_after_its_step(tmp_path, monkeypatch):
    """SIGTERM in the middle of step 6, and the same command again."""
    recipe, drawn = replace(RECIPE, steps=8, every=10**6), []

    def batch(pairs, numbers):
        drawn.append(1)
        if len(drawn) == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return tensors(pairs, numbers)

    whole = new_model()
    train(whole, DATA, recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(training, "tensors", batch)
        with pytest.raises(Stopped, match="give the same again"):
            train(new_model(), DATA, recipe, tmp_path / "parts")
    model = new_model(replace(recipe, seed=5))  # its weights come from the checkpoint
    place = json.loads((tmp_path / "parts" / "latest.json").read_text())["checkpoint"]
    assert place == "checkpoint-6"
    assert train(model, DATA, recipe, tmp_path / "parts").step == 8
    assert same(weights(model), weights(whole))


@pytest.mark.slow
def test_a_signal_saves_and_a_kill_loses_nothing(tmp_path):
    """SIGTERM ends a run after its step; SIGKILL does not undo what was saved."""
    script = SCRIPT.format(tests=str(ROOT))

    def start(folder):
        command = [sys.executable, "-c", script, str(folder), "100000"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 120
        while not (folder / "latest.json").exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return process

    for number in (signal.SIGTERM, signal.SIGKILL):
        folder = tmp_path / number.name
        process = start(folder)
        os.kill(process.pid, number)
        _, said = process.communicate(timeout=60)
        assert process.returncode != 0
        if number == signal.SIGTERM:
            assert b"give the same again" in said
        place = json.loads((folder / "latest.json").read_text())["checkpoint"]
        step = int(place.split("-")[1])
        recipe = replace(RECIPE, steps=step + 2, every=10**6)
        assert train(new_model(), DATA, recipe, folder).step == step + 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_answers_are_scored(tmp_path, number):
    def killed(answers, references):
        os.kill(os.getpid(), number)
        return share(answers, references)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored, as behind `&`
    try:
        with pytest.raises(Stopped, match="the same command goes on"):
            run_all([SHORT], CORPUS, tmp_path, killed)
    finally:
        signal.signal(signal.SIGINT, before)
    (facts,) = run_all([SHORT], CORPUS, tmp_path, share)
    assert facts["scores"]["test"]["headline"]
