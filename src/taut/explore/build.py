"""Build the interactive page: ``python -m taut.explore.build``.

Everything goes into one file: the scripts, the styles, and the two language models as they are, bit
by bit, in base64. Nothing is compressed, so that the same sources give the same bytes everywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from taut._base.files import write_whole
from taut._base.terminal_text import say
from taut.explore.bundle import bundle
from taut.explore.page import BUILT

SOURCES = Path(__file__).with_name("sources")
LARGEST = 5_000_000  # bytes


def built() -> str:
    """The page, from its sources and the models that ship with taut."""
    from taut.models import embedded_models  # only who builds the page needs PyTorch

    script = "\n" + bundle(SOURCES / "main.js") + "\n"
    style = "".join(
        file.read_text(encoding="utf-8") for file in sorted((SOURCES / "style").glob("*.css"))
    )
    folders = {name.removeprefix("embedded-"): path for name, path in embedded_models().items()}
    fields = {
        "policy": _policy(script, style),
        "style": style,
        "script": script,
        "tokenizer": _tokenizer(folders["plain"]),
    }
    for name, folder in folders.items():
        weights = (folder / "model.safetensors").read_bytes()
        fields[f"weights-{name}"] = base64.b64encode(weights).decode()
    text = (SOURCES / "index.html").read_text(encoding="utf-8")
    for field, content in fields.items():
        before, mark, after = text.partition("{{" + field + "}}")
        if not mark:
            raise ValueError(f"index.html has no place for {field}")
        text = before + content + after
    if len(text.encode()) > LARGEST:
        raise ValueError(f"the page has {len(text.encode()):,} bytes, more than {LARGEST:,}")
    return text


def _policy(script: str, style: str) -> str:
    """Nothing is fetched, and only the page's own script and style count, known by their hashes."""

    def known(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; script-src 'sha256-{known(script)}'; "
        f"style-src 'sha256-{known(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def _tokenizer(folder: Path) -> str:
    """Vocabulary and merges, without a < that could end the element they stand in."""
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    kept = {"vocab": model["vocab"], "merges": model["merges"]}
    return json.dumps(kept, separators=(",", ":")).replace("<", "\\u003c")


if __name__ == "__main__":
    write_whole(built(), BUILT)
    say(f"{BUILT}: {BUILT.stat().st_size:,} bytes")
