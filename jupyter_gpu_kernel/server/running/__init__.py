"""Kernels and nodes, for the page.

kernels: those of this machine's front ends, and their nodes; overview: all kernels on all nodes;
gpu_use: what GPUs did, and what cells take; actions: what a page does with one kernel.
"""
