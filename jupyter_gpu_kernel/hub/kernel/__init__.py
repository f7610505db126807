"""One remote kernel in the hub: what passes between its front ends and its keeper, and what is said in its place."""
