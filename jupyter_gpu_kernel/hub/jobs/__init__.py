"""Kernels in the jobs of a scheduler: when a job is submitted, its node, and what becomes of it."""
