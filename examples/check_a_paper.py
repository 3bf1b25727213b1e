"""You check the papers: run an experiment of Nair (2025) and compare it with what is printed.

`taut reproduce` does the same on the command line, with pages and figures. The other experiments
are listed in `reproduce.EXPERIMENTS`.
"""

from taut import reproduce


def main() -> None:
    """Print what the paper claims beside what this machine finds."""
    for name in ("example-1", "corollary-1"):
        result = reproduce.run(name, reproduce.Options(quick=True))
        print(result.title)
        for claim in result.claims:
            verdict = {True: "agrees", False: "disagrees", None: "no comparison"}[claim.agrees]
            print(f"  {claim.statement}: {claim.paper}; found {claim.found} ({verdict})")


if __name__ == "__main__":
    main()
