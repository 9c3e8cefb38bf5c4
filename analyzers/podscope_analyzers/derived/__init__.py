"""Lines that a capture does not have but people want to see: scopes, programs, launches."""

from podscope_analyzers.derived.planes import LineDeriver

__all__ = ["LineDeriver"]
