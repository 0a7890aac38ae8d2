"""Relays, one for each kernel, and the relay host that forks them. Clients use ``client``.

The host forks many relays, so what they import stays small (no asyncio, no jupyter_client).
"""
