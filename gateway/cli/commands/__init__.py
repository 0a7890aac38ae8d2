"""The subcommands of `aliquot`, one file each.

They parse and print; the folders beside this one do the work.
"""
