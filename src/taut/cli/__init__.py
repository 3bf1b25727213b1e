"""The command line: options and printing, one file a command."""

from taut.cli.app import app, main

__all__ = ["app", "main"]
