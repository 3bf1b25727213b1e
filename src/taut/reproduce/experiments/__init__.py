"""The experiments, one file each: its ``run`` takes options and gives a result."""
