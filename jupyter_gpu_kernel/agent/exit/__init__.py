"""Why kernels end, and what they leave: causes with evidence, processes, stale folders."""
