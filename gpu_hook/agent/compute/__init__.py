"""Compute shares: who may run how much on a device, decided from measured time. Pure, save for loop.py."""
