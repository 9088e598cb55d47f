"""A model of the dynamic loader: what `import` of an extension would do in a given environment."""
