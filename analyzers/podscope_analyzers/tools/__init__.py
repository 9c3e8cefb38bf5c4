"""One analyzer per module; the registry lists them."""
