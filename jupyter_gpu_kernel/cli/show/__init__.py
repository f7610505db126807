"""Tables for the terminal.

tables: tables of GPUs, kernels, checks and logs; slurm: tables of clusters; gpu_hours: the sums for `gpus --history`;
report: the text of `check --report`; watch: `--watch`, which shows a table again and again.
"""
