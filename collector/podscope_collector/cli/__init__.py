"""Sub-commands of `podscope` that live in the collector, one per module."""
