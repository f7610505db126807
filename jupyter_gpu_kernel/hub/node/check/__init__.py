"""What a node offers.

- `python_probe.py` asks a node about its Pythons, and `find_python.py` chooses the one for kernels.
- `probe.py` is the operation `probe`, for the command `add`.
- `check.py` is the operation `check`: the connection and the node step by step.
"""
