"""One remote kernel in the hub.

- Its life: `remote_kernel.py`, with `kernel_state.py`, `states.py` and `description.py`; `starter.py` and
  `late_start.py` are for kernels that a cell starts. `kernel_info.py` keeps what kernels have replied. All kernels of
  the hub are in `../kernels.py`.
- `core/`: what passes between its front ends and its keeper, and what front ends get in the kernel's place.
  `logged_cells.py` requests the last cells.
- `vscode/`: VS Code's restarts and returns.
"""
