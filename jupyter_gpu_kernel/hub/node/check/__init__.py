"""What a node offers.

- `python_probe.py` asks a node about its Pythons, and `find_python.py` chooses the one for kernels.
- `check.py` has the operation `probe`, for the command `add`, and the operation `check`: the connection and the node
  step by step.
"""
