"""How Newton's method follows the temperature: shared by its array form and its compiled form."""

GENTLE = 32.0  # where strides begin: D/32; from uniform strategies Newton converged there
ROUGH = 1e-2  # a stage is done when its gap is this part of its temperature
STEPS, IDLE = 10, 2  # steps that a stage may take, and in a row without halving its gap
STRIDE, LONGEST, SHORTEST = 0.5, 0.01, 0.99  # factors on the temperature: first, extremes
RISE = 2.0  # most that the log-probability of a strategy that matters may rise in a step
QUICK = 4  # a stage done in as few steps lengthens the stride
