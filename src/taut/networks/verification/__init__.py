"""Verdicts on properties of networks: attack, bound, then branch over the signs of ReLUs."""
