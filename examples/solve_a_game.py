"""You solve a game or tune a policy: an equilibrium with a certificate, the right temperature.

Needs nothing but NumPy and numba.
"""

import numpy as np

from taut import games

# What the row player pays: rock, paper, scissors with unequal stakes.
PAYOFFS = np.array([[0.0, 2.0, -1.0], [-2.0, 0.0, 1.0], [1.0, -1.0, 0.0]])


def main() -> None:
    """Print equilibria at several temperatures, and the sharpest policy of bounded sensitivity."""
    for temperature in (4.0, 0.5, 0.05):
        solution = games.solve(PAYOFFS, temperature)
        print(f"Temperature {temperature:g}: {solution.x.round(4)}, gap at most {solution.gap:.0e}")
        print(f"  {solution.certificate}")
    nash = games.anneal(PAYOFFS)
    print(f"Nash equilibrium: {nash.x.round(4)}")

    q = np.array([1.0, 0.8, 0.0, -0.5])
    scale = games.largest_scale(0.2, q)
    print(f"Up to the scale {scale:.3f} the policy softmax(scale * q) has a constant below 0.2.")


if __name__ == "__main__":
    main()
