"""The command line: thin commands over the Python API, one file each, imported when used."""

from localllm.cli.app import main

__all__ = ["main"]
