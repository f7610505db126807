"""A program that makes, describes and removes virtual environments of ours; `program.py` says how it runs."""
