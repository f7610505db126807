"""One remote kernel in the hub.

- Its life: `remote_kernel.py`, with `kernel_state.py`, `states.py` and `description.py`; `late_start.py` and
  `not_started.py` for kernels that a cell starts; `standby.py`, `reservation.py` and `moved_requests.py` for kernels
  with several hosts; `reconnect_grace.py` for kernels whose front end may come back.
- Its messages: `relay.py`, with `relayed_kernel.py`, `pending_requests.py`, `last_input.py`, `pacing.py` and
  `keeper_events.py`; `cell_history.py` requests the last cells.
- What front ends get in the kernel's place: `placeholder.py`, `offline_notice.py` and `displays.py`.
- VS Code's restarts and returns: `vscode_sessions.py`, `vscode_notebook.py`, and `pending_stops.py` for the kernels
  that a restart replaces.
"""
