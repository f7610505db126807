"""Tables.

tables: of GPUs, kernels, checks and logs; slurm: of clusters; gpu_hours: sums for `gpus --history`, and the times that
options take; watch: a table again and again.
"""
