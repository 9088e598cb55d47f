"""Tables of the rules as JSON files; `tables` loads and checks them."""
