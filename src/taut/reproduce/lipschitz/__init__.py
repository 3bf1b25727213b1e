"""Trainings under a certificate: data, networks, runs and their queue."""
