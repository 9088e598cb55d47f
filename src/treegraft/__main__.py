from treegraft.cli.main import entry

entry()
