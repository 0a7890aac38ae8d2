"""Controllers of other systems behind Aliquot's interface, to compare with. The product offers none of them."""
