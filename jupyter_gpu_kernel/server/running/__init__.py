"""Kernels and nodes, for the page.

kernels: those of this server; overview, overview_rows: all kernels on all nodes; nodes: GPUs; gpu_history: GPU hours;
gpu_use: what cells take; actions, attach: what a page does with one kernel; served: which ids this server has.
"""
