"""What the user's package index says: resolution by uv, and wheels to compare an installed dist with."""
