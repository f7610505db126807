"""The verb `add`.

add: the verb and its options; slurm: `--slurm`.
"""
