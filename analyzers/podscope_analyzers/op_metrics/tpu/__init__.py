"""Operations of TPU cores: nested events of the tracer, with costs from their metadata."""
