"""Relays, one beside each kernel, and the relay host that forks them. Clients use ``client``.

Relays are forked many times over: what they import stays small (no asyncio, no jupyter_client).
"""
