"""Tables for the terminal.

tables: tables of GPUs, kernels, checks and logs; slurm: tables of clusters; report: the text of
`check --report`; watch: `--watch`, which shows a table again and again.
"""
