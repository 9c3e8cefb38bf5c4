"""The Celery app: queues, routes and the settings that keep work from being lost."""

from celery import Celery
from kombu import Queue

from podscope_collector.errors import BrokerError
from podscope_collector.settings import CollectorSettings
from podscope_collector.work.queues import HEARTBEAT_TASK, MAINTENANCE, QUEUES, TICK_TASK

_TASK_MODULES = (
    "podscope_collector.captures.tasks",
    "podscope_collector.analyses.tasks",
    "podscope_collector.maintenance",
)


def create_celery(settings: CollectorSettings) -> Celery:
    """A Celery app on the broker of the settings.

    Raises:
        BrokerError: no broker is configured.
    """
    if settings.broker_url is None:
        message = (
            "no message broker is configured; set PODSCOPE_BROKER_URL to a Redis or Valkey URL, "
            "or run 'podscope up', which starts its own"
        )
        raise BrokerError(message)
    app = Celery("podscope", set_as_current=True, include=list(_TASK_MODULES))
    tick = settings.tick_interval.total_seconds()
    app.conf.update(
        broker_url=settings.broker_url.get_secret_value(),
        result_backend=None,
        result_expires=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_queues=[Queue(name) for name in QUEUES],
        task_default_queue=MAINTENANCE,
        task_create_missing_queues=False,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        # The outbox retries; a request must not wait for a broker that is away.
        task_publish_retry=False,
        broker_connection_timeout=3,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": settings.visibility_timeout.total_seconds(),
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "health_check_interval": 25,
            "socket_keepalive": True,
            "socket_connect_timeout": 3,
        },
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_enable_remote_control=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        timezone="UTC",
        beat_schedule={
            "tick": {
                "task": TICK_TASK,
                "schedule": tick,
                # Ticks that nobody took are worth nothing.
                "options": {"queue": MAINTENANCE, "expires": 5 * tick},
            },
            **{
                f"heartbeat-{queue}": {
                    "task": HEARTBEAT_TASK,
                    "schedule": min(5.0, settings.heartbeat_window.total_seconds() / 4),
                    "args": [queue],
                    "options": {
                        "queue": queue,
                        "expires": settings.heartbeat_window.total_seconds(),
                    },
                }
                for queue in QUEUES
            },
        },
    )
    return app
