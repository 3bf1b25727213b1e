"""Entropy-regularised games: equilibria with a certificate.

:func:`solve` finds the logit equilibrium of zero-sum games and proves its quality, :func:`certify`
says beforehand how plain iteration will behave, :func:`anneal` follows the temperature down to a
Nash equilibrium, :func:`logit_equilibrium` treats two players with payoffs of their own, and
:func:`policy_sensitivity` and :func:`largest_scale` softmax policies.
"""

from taut.games._anneal import Annealed, anneal
from taut.games._certificate import Certificate, certify
from taut.games._files import Payoffs, read
from taut.games._logit import logit_equilibrium
from taut.games._logit_answer import LogitCertificate, LogitEquilibrium
from taut.games._policy import Sensitivity, largest_scale, policy_sensitivity
from taut.games._solve import Solution, solve

__all__ = [
    "Annealed",
    "Certificate",
    "LogitCertificate",
    "LogitEquilibrium",
    "Payoffs",
    "Sensitivity",
    "Solution",
    "anneal",
    "certify",
    "largest_scale",
    "logit_equilibrium",
    "policy_sensitivity",
    "read",
    "solve",
]
