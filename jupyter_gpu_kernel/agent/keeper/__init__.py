"""The keeper: one process per kernel, which starts it, serves hubs, and ends when the kernel is no longer used."""
