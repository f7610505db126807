"""What a keeper holds while nobody reads: merged, spilled to disk, bounded, in order."""
