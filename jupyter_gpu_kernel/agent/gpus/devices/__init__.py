"""Which GPUs the node has, and what nvidia-smi or rocm-smi reports of them.

`gpu.py` has the classes for a GPU and its processes. `gpu_reader.py` reads the GPUs of one vendor: with
`nvidia_smi.py` (`nvidia_csv.py` and `mig.py` parse its output), or with `rocm_smi.py`; `smi_runner.py` runs either
program. `topology.py` ranks sets of GPUs by their links, and `visible_devices.py` has the variables that name them.
"""
