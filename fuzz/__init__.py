"""A campaign that tries to break every bound of taut: ``python -m fuzz``, or ``make fuzz``.

Each area makes cases, asks taut for bounds, and compares them with the truth, or with the largest
change that a search finds. Cases that come near to breaking a bound are kept and changed further.
"""
