"""The parts of a plan: what the resolver said, which dists move together, why each one is there, how it prints."""
