"""What runs on the host: standard library only, Python >= 3.8, started from memory, leaving nothing behind.

Knows nothing of the rest of treegraft: it takes one request (a dict) and answers plain dicts and lists, which
treegraft.environments.inventory gives types to. Imports inside are relative, for on a host it has another name.
"""
