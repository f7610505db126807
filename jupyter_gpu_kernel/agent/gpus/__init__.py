"""A kernel's GPUs: sampled, judged, leased, claimed, waited for.

`manager.py` is the keeper's view: what the first waiting cell shows, and what the kernel learns. `acquisition.py`
acquires GPUs: samples (`sampler.py`) become verdicts (`judge.py`, `requirements.py`) and then leases (`claim.py`),
unless a scheduler has allocated GPUs. `hours.py` counts for how long kernels had GPUs; `offer.py` answers requests
about the node. `devices/` reads GPUs from the driver, `sharing/` has leases and the queue.
"""
