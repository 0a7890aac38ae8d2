"""Compute shares: how much each kernel may run on a device, from measured time.

Pure, except for loop.py.
"""
