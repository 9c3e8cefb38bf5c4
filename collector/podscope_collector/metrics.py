"""The service's metrics, made from the database at every scrape."""

from podscope_collector.runtime import Runtime


def exposition(runtime: Runtime, accept: str) -> tuple[str, bytes]:
    """Content type and text of the metrics."""
    return "text/plain", b""
