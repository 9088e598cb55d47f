"""Facts about one Python environment: its interpreter, its distributions, its layout."""
