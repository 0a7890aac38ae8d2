"""Parts of the load benchmark: stand-ins for a node's kernels, simulated users, and statistics."""
