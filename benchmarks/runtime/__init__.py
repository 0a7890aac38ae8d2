"""Parts of `make bench-runtime`: relays, containers, adoption.

Each measures; benchmarks/runtime.py reports.
"""
