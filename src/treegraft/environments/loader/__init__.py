"""A model of the dynamic loader: what `import` of a package would do in a given environment.

world      the environment as it is or would be
catalogue  which library a name or path leads to
process    what is loaded, and what dlopen would say
modules    which file a module name leads to
imports    what running a package's `__init__` loads, in order
"""
