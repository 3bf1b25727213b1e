"""`python -m taut`, and so `torchrun -m taut audit ...`: the command line."""

from taut.cli import main

if __name__ == "__main__":
    main()
