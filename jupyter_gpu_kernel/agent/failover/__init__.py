"""A killed keeper is replaced: what its successor needs."""
