"""What every task and route works with: settings, database, storage and clock."""

from dataclasses import dataclass, field
from functools import cached_property

from podscope_collector.clock import Clock, utc_now
from podscope_collector.db import Database
from podscope_collector.settings import CollectorSettings
from podscope_collector.storage import Storage


@dataclass(frozen=True)
class Runtime:
    """The parts that a process shares between its threads."""

    settings: CollectorSettings
    database: Database
    clock: Clock = field(default=utc_now)

    @classmethod
    def from_settings(cls, settings: CollectorSettings) -> "Runtime":
        """Open what the settings name; nothing is contacted yet."""
        return cls(settings, Database(settings.database))

    @cached_property
    def storage(self) -> Storage:
        """Profiles and results; opened on first use."""
        return Storage(self.settings.storage)
