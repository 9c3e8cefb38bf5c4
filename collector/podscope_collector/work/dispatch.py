"""Sending the messages of due work; callable by everyone, at any time."""

from typing import Protocol

import structlog
from kombu.exceptions import OperationalError

from podscope_collector.runtime import Runtime
from podscope_collector.work import services
from podscope_collector.work.services import Message

log = structlog.get_logger(__name__)


class Sender(Protocol):
    """What sends a message: a Celery app."""

    def send_task(self, name: str, *, args: list[str], queue: str) -> object:
        """Put a message on a queue."""


def dispatch_due(runtime: Runtime, sender: Sender) -> int:
    """Send a message for each piece of work that is due.

    A broker that is away is logged and not raised: the rows stay due and the next call sends.

    Returns:
        The number of messages sent.
    """
    with runtime.database.writing() as session:
        messages = services.take_due_messages(
            session, runtime.clock(), runtime.settings.work_resend
        )
    for sent, message in enumerate(messages):
        try:
            _send(sender, message)
        except (OperationalError, OSError) as error:
            log.warning("broker_unreachable", unsent=len(messages) - sent, error=str(error))
            with runtime.database.writing() as session:
                unsent = [m.work_id for m in messages[sent:]]
                services.make_due(session, unsent, runtime.clock())
            return sent
    return len(messages)


def _send(sender: Sender, message: Message) -> None:
    sender.send_task(message.task, args=[str(message.work_id)], queue=message.queue)
