"""Kernels and nodes, for the page.

kernels: those of this machine's front ends, and their nodes; overview, overview_rows: all kernels on all nodes;
gpu_history: what GPUs did; gpu_use: what cells take; actions, attach: what a page does with one kernel.
"""
