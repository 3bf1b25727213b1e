"""The solvers of entropy-regularised games."""
