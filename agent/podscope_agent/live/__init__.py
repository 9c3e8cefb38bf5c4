"""Live figures of the host and its devices; one backend per source, each failing alone."""
