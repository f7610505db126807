"""A kernel in a scheduler's job: the job's process, and what attach and keepers know of it."""
