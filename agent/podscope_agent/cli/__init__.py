"""Sub-commands of `podscope` that live in the agent, one per module."""
