"""What runs on a GPU node: the hook, the software GPU, the node agent and the client that talks to it.

Imports nothing of the gateway or the provisioner.
"""
