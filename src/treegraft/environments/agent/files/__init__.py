"""Facts about single files: contents, ELF structure, device code. Knows no package and no environment."""
