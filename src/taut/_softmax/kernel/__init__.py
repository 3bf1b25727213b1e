"""The compiled kernel for the exact constants; importing its modules imports numba."""
