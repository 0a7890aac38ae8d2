"""The subcommands of `aliquot`, one file each.

They parse and print; what they do lives beside this folder.
"""
