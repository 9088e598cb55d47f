"""The rules, each a function from a World to findings."""
