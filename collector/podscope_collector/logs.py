"""Logging of the service's processes: structlog, to stderr."""

import logging
import sys

import structlog

from podscope_collector.settings import CollectorSettings


def configure_logging(settings: CollectorSettings) -> None:
    """Send our events and those of the libraries through one renderer."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # Their lines are one per message or query, of no use to who runs the service.
    for name in ("celery.app.trace", "celery.worker.strategy", "alembic", "httpx", "celery.beat"):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
