"""`python -m treegraft`: the same as the `treegraft` command."""

from treegraft.cli.main import entry

entry()
