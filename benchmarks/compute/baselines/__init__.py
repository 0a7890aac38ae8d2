"""Controllers of other systems behind Aliquot's interface, for comparison.

The product offers none of them.
"""
