"""The rules, each a function from the ground of a World to findings.

imports    which dists cannot be imported, and why (abi.*, dist.missing-file, dist.missing-requirement)
providers  who would provide a symbol or library, where that is known
strays     native files that no import reaches: executables, plugins
gpu        device code, driver, health, toolchain
dists      modified, unowned, missing, multi-owned, duplicate, editable
pairs      versions that must fit each other
places     the prefix on its host: relocation, hard links, loader, disk, ports, noexec
"""
