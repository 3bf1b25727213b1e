"""A certified upper bound of the p-norm of the softmax Jacobian, by duality and branch and bound.

The mathematics, lemma by lemma, is on the documentation page "A tight bound for every p". Importing
the modules of this package imports numba.
"""
