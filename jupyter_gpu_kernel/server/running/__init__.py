"""Kernels and nodes, for the page.

actions: the kernels of this machine's front ends, their nodes, and what a page does with one kernel; overview: all
kernels on all nodes; gpu_use: what GPUs did, and what cells take.
"""
