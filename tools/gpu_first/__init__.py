"""The first ten minutes on a GPU: independent phases, each with a limit, that settle what the hook assumes of a driver.

`python3 tools/gpu_first --gpu nvidia --out RESULTS --budget 575` runs them in the order of
docs/how-to/test-on-a-gpu.md. Needs Python and a driver; each further thing that lacks (a compiler, a framework) stops
the phases that need it, no other.
"""
