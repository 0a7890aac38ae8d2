"""The parts of Aliquot on a GPU node: hook, software GPU, node agent, and the agent's client.

They import nothing of the gateway or the provisioner.
"""
