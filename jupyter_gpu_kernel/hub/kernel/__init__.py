"""One remote kernel in the hub: its life cycle, its messages, and what front ends get while it cannot answer."""
