"""Write the registry page of the theory from taut.theorems, so that the two cannot disagree."""

from pathlib import Path

from taut import theorems
from taut.reproduce.page import literal_underscores


def page() -> str:
    lines = [
        "# Theorem registry",
        "",
        "This page is written from `taut.theorems`, by `docs/write_theory.py`.",
        "",
        "Notation: logits x in R^n, inverse temperature λ > 0, s = softmax(λx) with s₁ ≥ s₂ ≥ …,",
        "M = Diag(s) − ssᵀ, J = λM, osc(u) = max u − min u, 1/p + 1/p′ = 1. Proofs of what goes",
        "beyond the sources are on the pages [Proofs](proofs.md),",
        "[Proofs: attention](proofs_attention.md) and",
        "[Proofs: bound propagation](proofs_propagation.md).",
    ]
    section = ""
    for theorem in theorems.THEOREMS.values():
        if theorem.section != section:
            section = theorem.section
            lines += ["", f"## {section}"]
        lines += [
            "",
            f"### {theorem.id}",
            "",
            f"{theorem.statement}.",
            "",
            f"- **Domain:** {theorem.domain}.",
            f"- **Why:** {theorem.why}.",
            f"- **Tight:** {theorem.tight}.",
            f"- **Source:** {theorem.source}.",
        ]
    lines += ["", "## Sources", ""]
    lines += [f"- **{name}:** {text}." for name, text in theorems.SOURCES.items()]
    lines += [
        "",
        "## Errata",
        "",
        "Where the sources are wrong or silent, and what this library implements.",
        "",
        "| where | it says | true |",
        "|---|---|---|",
    ]
    lines += [f"| {e.where} | {e.says} | {e.true} |".replace("|H", "\\|H") for e in theorems.ERRATA]
    return literal_underscores("\n".join(lines) + "\n")


def main() -> None:
    Path(__file__).with_name("theory.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
