"""One remote kernel in the hub.

- `core/` is pure: it decides what follows from what happens to the kernel. `remote_kernel.py` is the shell around it:
  it reports events to the core, and carries out what the core wants done, with `keeper_connection.py` (the messages of
  the keeper, the files for the successor of a killed hub, and the attachment to the link).
- `kernel_state.py` is what all kernels and reservations have in common, and how a kernel is described to clients.
  `starter.py` starts kernels when their users run a cell. All kernels of the hub are in `../kernels.py`.
- `kernel_info.py` keeps what kernels have replied; `logged_cells.py` requests the last cells.
- `vscode/`: VS Code's restarts and returns.
"""
