"""What routes ask for."""

from dataclasses import dataclass
from typing import Annotated, cast

import structlog
from fastapi import Depends, Request
from sqlalchemy.exc import SQLAlchemyError

from podscope_collector.runtime import Runtime
from podscope_collector.work.dispatch import Sender, dispatch_due

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Service:
    """The parts of a running API process."""

    runtime: Runtime
    sender: Sender

    def nudge(self) -> None:
        """Send what is due now instead of at the next tick; failures wait for the tick."""
        try:
            dispatch_due(self.runtime, self.sender)
        except SQLAlchemyError as error:
            log.warning("dispatch_failed", error=str(error))


def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


ServiceNow = Annotated[Service, Depends(_service)]
