"""The verbs for running kernels.

kernels: `ps`, `attach`, `priority`, `logs` and `stop`; gpu_check: `check --gpu`, which runs a kernel; gpu_verdicts:
what that kernel's answers mean.
"""
