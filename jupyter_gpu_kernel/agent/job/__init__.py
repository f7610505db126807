"""A kernel in a scheduler's job.

`process.py` is the job's process (`agent job`), which starts keepers and ends with the last of them. Its parts are
`slurm_job.py` (what Slurm tells of the job), `signals.py`, and `output.py` (the file with the job's output).
`client.py` connects to the process, for `attach` and for keepers (`keeper/limits/kernel_job.py`).
"""
