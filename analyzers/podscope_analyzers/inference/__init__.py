"""Requests that a serving job answered: what each was spent on, the batches they ran in."""

from podscope_analyzers.inference.stats import InferenceStats

__all__ = ["InferenceStats"]
