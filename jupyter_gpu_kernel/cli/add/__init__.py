"""The verb `add`.

add: the verb and its options; hosts: what is said of several hosts; slurm: `--slurm`.
"""
