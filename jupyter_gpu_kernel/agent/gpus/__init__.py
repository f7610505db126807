"""A kernel's GPUs: sampled, judged, leased, claimed, waited for; and the gate at which user cells wait."""
