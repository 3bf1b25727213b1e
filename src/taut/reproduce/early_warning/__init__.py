"""Trainings with faults, the signals that are recorded in them, and the alarms that these raise."""
