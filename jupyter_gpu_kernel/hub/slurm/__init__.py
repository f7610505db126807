"""Slurm, as the hub uses it: short commands on a login node, and what they print.

`commands.py` writes scripts for the login node's /bin/sh and for jobs, `dialect.py` reads what squeue, scontrol, sacct
and sbatch print about jobs, `partitions.py` reads sinfo and chooses among partitions, and `words.py` makes sentences
for users. These modules are pure. `scheduler.py` runs the commands over the connection to one login node,
`job_queue.py` decides when squeue is run for those who watch jobs, and `operations.py` has what the user's commands do.
"""
