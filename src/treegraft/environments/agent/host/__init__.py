"""Facts about the host: each a command or a file, plus a pure parser of its output."""
