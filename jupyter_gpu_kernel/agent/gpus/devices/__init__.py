"""Which GPUs the node has, and what nvidia-smi or rocm-smi reports of them.

`gpu.py` has the classes for a GPU and its processes, and the variables that name GPUs. `gpu_reader.py` reads the GPUs
of one vendor: with `nvidia_smi.py` (`nvidia_csv.py` parses its output), or with `rocm_smi.py`;
`smi_runner.py` runs either program. `topology.py` ranks sets of GPUs by their links.
"""
