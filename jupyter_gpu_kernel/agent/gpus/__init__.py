"""A kernel's GPUs: read, judge, lease, claim, wait for; the gate where user cells wait meanwhile."""
