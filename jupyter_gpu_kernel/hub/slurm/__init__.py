"""Slurm, as the hub uses it: short commands on the login node, and what they print.

Only `scheduler.py` runs commands. The other modules are pure: they write scripts for the login node's /bin/sh or for a
job, and read outputs.
"""
