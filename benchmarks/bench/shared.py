"""Names that the run, its workers and its nodes share."""

LOGIN, WORK = "bench-login", "bench-work"
"""The nodes in the ssh configuration."""
KERNELSPEC, KERNELSPEC_GPU = "bench", "bench-gpu"
MARK = "JUPYTER_GPU_KERNEL_BENCH"
"""The variable that all processes of a way have in their environment, with the way's folder, a part of the run's."""
SSH_CONFIG = "JUPYTER_GPU_KERNEL_BENCH_SSH"
"""The variable with the path of the ssh configuration, in the environment of workers."""
