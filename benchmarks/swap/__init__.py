"""Parts of `make bench-swap`: programs, and the kernel that is swapped.

benchmarks/swap.py measures and reports.
"""
