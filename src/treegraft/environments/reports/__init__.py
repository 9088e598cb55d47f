"""Findings, differences and plans for people: plain text for terminals, one self-contained HTML page. Everything that
came from a host is escaped here; nothing is decided here."""
