"""Which events belong to which step: causes followed across threads and devices."""
