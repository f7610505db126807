"""The operations of the hub that clients can call: `rpc.py` passes each call to a method `op_<name>(call)`.

- `commands.py`: all operations together; and those of the commands, which ask nodes. `rows.py`: lists of what several
  nodes have replied.
- `front_ends.py`: the operations of front ends, for the kernels that they have here.
- `environments.py`: the operations for virtual environments on nodes.
"""
