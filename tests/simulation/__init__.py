"""The life of a kernel in simulated time: one seed decides everything that happens in an episode.

Real: the hub's link, attachments, relay, front ends and what they use; the wire; the keeper, its server, relay, output
and successor. Simulated: the clock and randomness (`world`), the network (`network`), the agent's `attach` and the
node (`node`), the kernel's process (`kernel`), front ends and their users (`front_end`, `user`), and the hub's process
(`hub`). `plan` draws from a seed what users do and what fails; `episode` lets it happen; `oracle` says what was wrong.
`python -m tests.simulation --help` runs episodes. `mutants` plants bugs, to see that they are found.
"""
