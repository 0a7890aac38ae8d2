"""Parts of the load benchmark: stand-ins for a node's kernels, users who ask, and what is made of their times."""
