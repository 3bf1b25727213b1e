"""Entropy-regularised games: equilibria with a certificate.

:func:`equilibrium` picks the solver that a game needs. :func:`solve` finds the logit equilibrium of
zero-sum games and proves its quality, :func:`certify` says beforehand how plain iteration will
behave, :func:`anneal` follows the temperature down to a Nash equilibrium,
:func:`logit_equilibrium` treats two players with payoffs of their own,
:func:`logit_branches` finds many equilibria of small games of two or more players, and
:func:`policy_sensitivity` and :func:`largest_scale` softmax policies.
"""

from taut.games._files.players import read_players
from taut.games._files.read import Payoffs, read
from taut.games.anneal import Annealed, anneal
from taut.games.branches_answer import LogitBranch, LogitBranches, LogitPoints
from taut.games.certificate import ContractionCertificate, certify
from taut.games.equilibrium import equilibrium
from taut.games.logit import logit_equilibrium
from taut.games.logit_answer import LogitCertificate, LogitEquilibrium
from taut.games.logit_branches import logit_branches
from taut.games.plot import check_plot, plot_gap
from taut.games.plot_branches import plot_branches
from taut.games.policy import Sensitivity, largest_scale, policy_sensitivity
from taut.games.solution import Solution
from taut.games.solve import solve

__all__ = [
    "Annealed",
    "ContractionCertificate",
    "LogitBranch",
    "LogitBranches",
    "LogitCertificate",
    "LogitEquilibrium",
    "LogitPoints",
    "Payoffs",
    "Sensitivity",
    "Solution",
    "anneal",
    "certify",
    "check_plot",
    "equilibrium",
    "largest_scale",
    "logit_branches",
    "logit_equilibrium",
    "plot_branches",
    "plot_gap",
    "policy_sensitivity",
    "read",
    "read_players",
    "solve",
]
