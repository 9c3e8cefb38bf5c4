"""An XPlane under construction: names are interned, other planes' lines can join."""

from typing import Any, Final

from podscope import wire

HOST_PLANE: Final = "/host:CPU"
TASK_PLANE: Final = "Task Environment"
PS_PER_NS: Final = 1000


class PlaneBuilder:
    """Gives out the ids of a plane's names.

    Args:
        message: The XPlane, empty or with names of its own.
    """

    def __init__(self, message: Any) -> None:
        self.message = message
        self._event_ids = _by_name(message.event_metadata)
        self._stat_ids = _by_name(message.stat_metadata)
        self._last_event_id = max(message.event_metadata, default=0)
        self._last_stat_id = max(message.stat_metadata, default=0)

    def event_id(self, name: object) -> int:
        """The id of events called `name`."""
        text = as_text(name)
        found = self._event_ids.get(text)
        if found is None:
            self._last_event_id += 1
            found = self._event_ids[text] = self._last_event_id
            self.message.event_metadata[found].id = found
            self.message.event_metadata[found].name = text
        return found

    def stat_id(self, name: object) -> int:
        """The id of a stat's name, or of a text among the values."""
        text = as_text(name)
        found = self._stat_ids.get(text)
        if found is None:
            self._last_stat_id += 1
            found = self._stat_ids[text] = self._last_stat_id
            self.message.stat_metadata[found].id = found
            self.message.stat_metadata[found].name = text
        return found

    def add_stat(self, owner: Any, name: str, value: object) -> None:
        """Give an event, an event's metadata or the plane a stat."""
        stat = owner.stats.add(metadata_id=self.stat_id(name))
        if isinstance(value, float):
            stat.double_value = value
        elif isinstance(value, int) and -(2**63) <= value < 2**63:
            stat.int64_value = int(value)
        elif isinstance(value, int) and 0 <= value < 2**64:
            stat.uint64_value = value
        elif isinstance(value, bytes):
            stat.bytes_value = value
        else:
            stat.ref_value = self.stat_id(value)


def _by_name(table: Any) -> dict[str, int]:
    # Several ids of one name are allowed; the first will do.
    return {table[key].name: key for key in sorted(table, reverse=True)}


def task_plane(start_unix_ns: int, stop_unix_ns: int) -> Any:
    """The plane that says when the capture was."""
    plane = PlaneBuilder(wire.XPlane(name=TASK_PLANE))
    for key, value in (
        ("profile_start_time", start_unix_ns),
        ("profile_stop_time", stop_unix_ns),
    ):
        stat = plane.message.stats.add(metadata_id=plane.stat_id(key))
        stat.uint64_value = value
    return plane.message


def as_text(value: object) -> str:
    """What a user gave, as text that a message can hold; one odd name must not cost a capture."""
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception as error:  # noqa: BLE001 - a user's own __str__ may raise anything
        return f"<{type(value).__name__} without text: {type(error).__name__}>"
