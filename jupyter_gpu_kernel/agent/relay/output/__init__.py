"""The kernel's output in the keeper: merged, written to disk while nobody reads, up to a limit, in order."""
