"""What waits for input: the steps' side of it and the host's, shared by two tools."""

from podscope_analyzers.input_pipeline.analysis import InputPipeline, analyze_input_pipeline

__all__ = ["InputPipeline", "analyze_input_pipeline"]
