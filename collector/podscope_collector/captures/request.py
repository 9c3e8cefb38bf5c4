"""The one model of a capture request: the API, the command line and schedules share it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from podscope_collector.captures.advanced import AdvancedValue, checked, nearest
from podscope_collector.captures.quorum import checked_quorum, required_hosts
from podscope_collector.captures.targets import TargetList, parse_targets, split_targets
from podscope_collector.errors import RequestError
from podscope_protos.methods import MAX_MESSAGE_BYTES

DURATION_MS = 2000
MAX_DURATION_MS = 3_600_000
MAX_STEPS = 100_000
STEPS_DURATION_MS = 60_000
"""The longest window of a number of steps, unless the request says another."""
MAX_ATTEMPTS = 20
MAX_DELAY_MS = 600_000
MAX_TIMEOUT_MS = 3_600_000
SYNCHRONIZED_DELAY_MS = 1000
MAX_WHO_LENGTH = 200
MAX_HOST_BYTES = MAX_MESSAGE_BYTES
MAX_LABELS = 64
MAX_LABEL_LENGTH = 253
_UINT32 = 2**32 - 1

MAX_HOST_LEVEL = 3
MAX_PYTHON_LEVEL = 2

# What more than 1 means is a device's own matter.
DeviceLevel = Annotated[StrictInt, Field(ge=0, le=_UINT32)]


class CaptureRequest(BaseModel):
    """What to capture, and when the result counts.

    Attributes:
        targets: Items as they were written; ``parsed_targets`` expands them.
        is_tpu_name: Bare items are names of TPUs, see ``parse_targets``.
        duration_ms: Length of the window on each host; with ``steps`` the longest it may be.
        steps: As many whole steps are in the window, see ``step_window.py``; every target must
            be an agent that knows how long they take.
        attempts: How often one host is tried; a host that succeeded is never tried again. One
            where another capture runs is asked, unless this is 1, until the time for it is over.
        quorum: ``all``, ``any``, a number of hosts or ``P%``: how many must be done for a
            capture that lost some to be ``partial`` and not ``failed``.
        delay_ms: All hosts start at one instant, this long after the last is connected; 0
            starts each as soon as the request reaches it.
        timeout_ms: What a host is given beyond delay and window, to collect and send.
        synchronized: All hosts start at one instant, after 1 s unless ``delay_ms`` says another.
            No host may begin later than the others because bytes, width or file
            descriptors are short here: the capture is refused beforehand instead.
        expected_host_bytes: What one host's profile is taken for until it has arrived; None:
            as large as the largest of the run's last capture, where there is one.
        retry_empty: Try a host without events again, with a window twice as long.
        host_tracer_level: 0 off, 1 user annotations, 2 also costly runtime operations, 3 all.
        device_tracer_level: 0 off, 1 on.
        python_tracer_level: 0 off, 1 on (many more events), 2 every call, where the target is
            podscope's own library.
        advanced_configuration: Options of the device tracers, see ``advanced.py``.
        requested_by: Who asked, for people.
        trigger: Why: ``manual`` when a person asked, ``alert``, or ``api`` for other programs. A
            schedule's captures say so by themselves.
        labels: Free ``key: value`` pairs; ``run`` names the training run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    targets: tuple[str, ...]
    is_tpu_name: StrictBool = False
    duration_ms: StrictInt = DURATION_MS
    steps: StrictInt | None = None
    attempts: StrictInt = 3
    quorum: str = "any"
    delay_ms: StrictInt = 0
    timeout_ms: StrictInt = 60_000
    synchronized: StrictBool = False
    expected_host_bytes: StrictInt | None = None
    retry_empty: StrictBool = False
    host_tracer_level: StrictInt = 2
    device_tracer_level: DeviceLevel = 1
    python_tracer_level: StrictInt = 0
    advanced_configuration: dict[str, StrictBool | StrictInt | str] = Field(default_factory=dict)
    requested_by: str | None = None
    trigger: Literal["manual", "alert", "api"] = "api"
    labels: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        """Refuse unknown fields; fill in what others of them imply."""
        if not isinstance(given, Mapping):
            return given
        for key in given:
            if key not in cls.model_fields:
                msg = f"'{str(key)[:80]}' is unknown; {nearest(str(key), [*cls.model_fields])}"
                raise ValueError(msg)
        implied = {}
        if given.get("synchronized") is True and not given.get("delay_ms"):
            # It needs an instant to start at.
            implied["delay_ms"] = SYNCHRONIZED_DELAY_MS
        if given.get("steps") is not None and given.get("duration_ms") is None:
            implied["duration_ms"] = STEPS_DURATION_MS
        return {**given, **implied}

    @field_validator("targets", mode="before")
    @classmethod
    def _split(cls, given: object) -> object:
        if isinstance(given, str):
            return tuple(split_targets(given))
        if isinstance(given, (list, tuple)) and all(isinstance(item, str) for item in given):
            return tuple(split_targets(given))
        msg = "targets must be a text or a list of texts"
        raise ValueError(msg)

    @field_validator("duration_ms")
    @classmethod
    def _duration(cls, given: int) -> int:
        return _within("duration_ms", given, 1, MAX_DURATION_MS, "1 ms to 1 hour")

    @field_validator("steps")
    @classmethod
    def _steps(cls, given: int | None) -> int | None:
        return None if given is None else _within("steps", given, 1, MAX_STEPS)

    @field_validator("attempts")
    @classmethod
    def _attempts(cls, given: int) -> int:
        return _within("attempts", given, 1, MAX_ATTEMPTS)

    @field_validator("delay_ms")
    @classmethod
    def _delay(cls, given: int) -> int:
        return _within("delay_ms", given, 0, MAX_DELAY_MS, "0 to 10 minutes")

    @field_validator("timeout_ms")
    @classmethod
    def _timeout(cls, given: int) -> int:
        return _within("timeout_ms", given, 1, MAX_TIMEOUT_MS, "1 ms to 1 hour")

    @field_validator("expected_host_bytes")
    @classmethod
    def _expected_host_bytes(cls, given: int | None) -> int | None:
        if given is None:
            return None
        return _within("expected_host_bytes", given, 1, MAX_HOST_BYTES, "1 byte to 2 GiB")

    @field_validator("quorum", mode="before")
    @classmethod
    def _quorum(cls, given: object) -> str:
        return checked_quorum(str(given))

    @field_validator("advanced_configuration", mode="before")
    @classmethod
    def _advanced(cls, given: object) -> dict[str, AdvancedValue]:
        if not isinstance(given, Mapping):
            msg = "advanced_configuration must be an object of options and their values"
            raise ValueError(msg)
        return {str(key): checked(str(key), value) for key, value in given.items()}

    @field_validator("host_tracer_level")
    @classmethod
    def _host_level(cls, given: int) -> int:
        return _within("host_tracer_level", given, 0, MAX_HOST_LEVEL)

    @field_validator("python_tracer_level")
    @classmethod
    def _python_level(cls, given: int) -> int:
        return _within("python_tracer_level", given, 0, MAX_PYTHON_LEVEL)

    @field_validator("requested_by")
    @classmethod
    def _requested_by(cls, given: str | None) -> str | None:
        if given and (len(given) > MAX_WHO_LENGTH or not given.isprintable()):
            msg = f"requested_by has at most {MAX_WHO_LENGTH} characters that can be printed"
            raise ValueError(msg)
        return given or None

    @field_validator("labels")
    @classmethod
    def _labels(cls, given: dict[str, str]) -> dict[str, str]:
        if len(given) > MAX_LABELS:
            msg = f"{len(given)} labels are too many; at most {MAX_LABELS} are kept"
            raise ValueError(msg)
        for key, text in given.items():
            if not key or max(len(key), len(text)) > MAX_LABEL_LENGTH:
                msg = f"label '{key[:40]}': key and value have 1 to {MAX_LABEL_LENGTH} characters"
                raise ValueError(msg)
            if not (key.isprintable() and text.isprintable()):
                msg = f"label {key[:40]!r} has characters that cannot be printed"
                raise ValueError(msg)
        return given

    @model_validator(mode="after")
    def _targets_and_quorum(self) -> Self:
        wanted = self.parsed_targets()
        total = len(wanted.targets)
        # How many a lookup finds is known only when the capture begins.
        if not wanted.lookups and required_hosts(self.quorum, total) > total:
            msg = f"quorum {self.quorum} asks for more hosts than the {total} of the target list"
            raise ValueError(msg)
        return self

    def parsed_targets(self) -> TargetList:
        """The distinct addresses and lookups that the items name, in order."""
        try:
            return parse_targets(self.targets, is_tpu_name=self.is_tpu_name)
        except RequestError as error:
            # Within pydantic only a ValueError is a validation error.
            raise ValueError(str(error)) from error


def _within(name: str, given: int, low: int, high: int, words: str | None = None) -> int:
    if low <= given <= high:
        return given
    span = f" ({words})" if words else ""
    msg = f"{name} {given} is out of range; it must be from {low:,} to {high:,}{span}"
    raise ValueError(msg)


def parse_request(given: Mapping[str, Any]) -> CaptureRequest:
    """A request out of untrusted fields.

    Raises:
        RequestError: One line that names the first wrong field and what it may be.
    """
    try:
        return CaptureRequest.model_validate(given)
    except ValidationError as error:
        raise RequestError(request_problem(error)) from error


def parse_stored_request(stored: Mapping[str, Any]) -> CaptureRequest:
    """A request that was valid when it was stored: tracer levels of older versions are lowered.

    Raises:
        RequestError: As of ``parse_request``.
    """
    highest = {"host_tracer_level": MAX_HOST_LEVEL, "python_tracer_level": MAX_PYTHON_LEVEL}
    lowered = {
        name: min(stored[name], level)
        for name, level in highest.items()
        if isinstance(stored.get(name), int)
    }
    return parse_request({**stored, **lowered})


def request_problem(error: ValidationError) -> str:
    """The first problem of a validation error, as one line for people."""
    first = error.errors(include_url=False, include_input=False)[0]
    text = first["msg"].removeprefix("Value error, ")
    where = ".".join(str(part) for part in first["loc"][:2] if part != "body")
    return text if first["type"] == "value_error" or not where else f"{where}: {text}"
