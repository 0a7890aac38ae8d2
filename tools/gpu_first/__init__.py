"""Run the first ten minutes on a GPU: phases that test what the hook assumes of a driver.

The phases are independent. Each phase has a time limit. `python3 tools/gpu_first --gpu nvidia --out
RESULTS --budget 575` runs them in the order of docs/how-to/test-on-a-gpu.md. The command needs
Python and a driver. If something else is missing (a compiler, a framework), only the phases that
need it are skipped.
"""
