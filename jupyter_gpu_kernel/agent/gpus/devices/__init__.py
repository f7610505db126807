"""Which GPUs the node has, and what nvidia-smi or rocm-smi reports of them."""
