"""METEOR: by Meteor 1.5 as in nlg-eval where it can be had, else by a stand-in."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from taut.reproduce.seq2seq.needed_packages import for_scores


def meteor(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """METEOR from 0 to 1, and how it was computed.

    Meteor 1.5 is a program in Java with tables of synonyms and paraphrases of 70 MB. It is used if
    ``java`` and the package pycocoevalcap, which contains it, are there; ``pip install --no-deps
    pycocoevalcap`` is enough.
    """
    jar = meteor_jar()
    if jar is not None:
        how = f"Meteor 1.5 (pycocoevalcap {version('pycocoevalcap')})"
        return meteor_15(hypotheses, references, jar), how
    scores = meteor_without_synonyms(hypotheses, references)
    how = f"stand-in: nltk {version('nltk')}, mean of sentences, exact and stem matches only"
    return sum(scores) / len(scores), how


def meteor_jar() -> Path | None:
    """The program Meteor 1.5, if it and Java are there."""
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations or shutil.which("java") is None:
        return None
    jar = Path(next(iter(spec.submodule_search_locations))) / "meteor" / "meteor-1.5.jar"
    return jar if jar.is_file() else None


def meteor_15(hypotheses: Sequence[str], references: Sequence[str], jar: Path) -> float:
    """METEOR of all sentences together by Meteor 1.5, with the options of nlg-eval."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("hypotheses", "references")]
        for file, sentences in zip(files, (hypotheses, references), strict=True):
            lines = (" ".join(sentence.split()) for sentence in sentences)
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = ["java", "-Dfile.encoding=UTF-8", "-Xmx2G", "-jar", str(jar), *map(str, files)]
        command += ["-l", "en", "-norm", "-q"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
    try:
        return float(done.stdout)
    except ValueError:
        text = (done.stderr or done.stdout)[-500:].strip()
        raise RuntimeError(
            f"Meteor 1.5 gave no score (exit code {done.returncode}): {text or 'it said nothing'}. "
            "Without the package pycocoevalcap, nltk's METEOR is used"
        ) from None


class _NoSynonyms:
    """Stands in for WordNet, which would have to be downloaded."""

    def synsets(self, word: str) -> list[Any]:
        return []


def meteor_without_synonyms(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """METEOR of each sentence by nltk (Lavie and Agarwal, 2007), by exact words and by stems.

    Lower than with synonyms, and with other weights than Meteor 1.5: compare such numbers only
    with one another.
    """
    with for_scores():
        from nltk.translate.meteor_score import single_meteor_score
    return [
        float(single_meteor_score(reference.split(), hypothesis.split(), wordnet=_NoSynonyms()))
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
