"""What runs in the kernel's own process.

`main.py` starts ipykernel. `guard.py` handles SIGTERM, by the rules in `signal_rules.py`, with `usage.py` (whether the
kernel is in use) and `hooks.py` (the functions that users register). `gpu_kernel.py` is the module that users import,
with `done_functions.py`; `pinned_imports.py` redirects imports to pinned code. `output_window.py` slows writers of
output, `unread_messages.py` keeps what a killed keeper may not have read, and `keeper_watch.py` replaces that keeper.
"""
