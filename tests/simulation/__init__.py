"""The life of a kernel in simulated time: one seed decides everything that happens in an episode.

Real: the hub's link, attachments, relay, front ends and what they use; the wire; the keeper, its server, relay, output
and successor. Simulated: the clock and randomness (`world`); the network (`network`); the agent's `attach` (`attach`),
what a keeper uses of its node (`keeper`, `node`), the kernel's process (`kernel`, `kernel_end`); front ends' sockets
and clients (`front_end`); the hub's process (`hub`).

A part of the seeds has GPUs: `gpus` is what `nvidia-smi` prints of them, `node_sockets` the names and descriptors by
which leases and places in the queue are known. `gpu_plan` draws several `notebooks` that share the GPUs, and
`gpu_oracle` looks at leases, queue and waiting cells.

In others a kernel may start on several `hosts`, of which the hub's real code chooses one, or it runs in a job of
`slurm`, whose commands are answered as their programs would.

`plan` draws from a seed what users do (`users`) and what fails (`faults`), alone or in `stories`; `episode` lets it
happen; `endings` brings it to an end, `oracle` says what was wrong, and `invariants` looks into hub and keeper.
`runner` runs and shrinks episodes; `python -m tests.simulation --help` is its command. `mutants` plants the bugs of
`planted/`, to see that they are found; `regressions` has plans that have shown a bug.
"""
