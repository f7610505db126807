"""The verbs for running kernels.

kernels: `ps`, `attach`, `priority` and `logs`; stop; wait: `ps --wait`; waited_kernel: one kernel that is waited
for.
"""
