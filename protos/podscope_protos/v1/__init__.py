"""Generated message classes; see the .proto files beside them."""
