"""The verbs for running kernels.

kernels: `ps`, `attach`, `priority` and `logs`; stop; wait: `ps --wait`; waited_kernel: one kernel that is waited
for; gpu_check: `check --gpu`, which runs a kernel; gpu_verdicts: what that kernel's answers mean.
"""
