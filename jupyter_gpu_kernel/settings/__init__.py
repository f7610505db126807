"""The settings that users give. wire/kernel_settings.py declares them.

check: parses a kernelspec's object, and checks the values; slurm: the values for kernels in Slurm jobs; secret_filter:
finds what looks like a secret. No module here knows where settings are stored, or who uses them.
"""

from .check import check, parse, read_env_file

__all__ = ["check", "parse", "read_env_file"]
