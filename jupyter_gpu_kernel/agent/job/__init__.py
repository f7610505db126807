"""A kernel in a scheduler's job.

`process.py` is the job's process (`agent job`), which starts keepers and ends with the last of them. Its parts are
`slurm_job.py` (what Slurm tells of the job), `signals.py`, `output.py` (the file with the job's output) and
`sockets.py` (the socket for requests). `client.py` sends the requests of `attach`, and `member.py` those of a keeper;
`end_notices.py` says when a keeper tells its user that the job ends.
"""
