"""The relay beside each kernel, and the relay host that forks them. Clients use ``client``; nothing is imported here.

Relays are forked many times over: what they import stays small (no asyncio, no jupyter_client).
"""
