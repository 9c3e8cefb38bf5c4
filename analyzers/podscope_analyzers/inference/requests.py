"""Which groups of events are requests to a server, and which model each of them names."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.inference.events import Kind, Relations, ServingEvents
from podscope_analyzers.inference.stats import MAX_MODELS
from podscope_analyzers.sorted_values import distinct

Int64s = npt.NDArray[np.int64]

# Of these, the first kind that occurs is what a request is.
_REQUESTS: Final = (
    (Kind.BATCHING_SESSION_RUN,),
    (Kind.TFRT_MODEL_RUN,),
    (Kind.SERVING_MODEL_RUN,),
    (Kind.SESSION_RUN, Kind.RUN_GRAPH),
)
_NAMES_MODEL: Final = (Kind.SESSION_RUN, Kind.TFRT_MODEL_RUN, Kind.SERVING_MODEL_RUN)
BATCHES: Final = (Kind.PROCESS_BATCH, Kind.ORBAX_PROCESS_BATCH)


@dataclass(frozen=True)
class Groups:
    """Some groups, ascending, shape (n,)."""

    ids: Int64s

    @classmethod
    def of(cls, groups: Int64s) -> "Groups":
        """The distinct ones of some groups."""
        return cls(distinct(groups))

    def rows(self, groups: Int64s) -> Int64s:
        """The place of every group among these, -1 for none."""
        if not len(self.ids):
            return np.full(len(groups), -1, np.int64)
        at = np.minimum(np.searchsorted(self.ids, groups), len(self.ids) - 1)
        return np.where(self.ids[at] == groups, at, -1)


@dataclass(frozen=True)
class Requests(Groups):
    """Requests by their groups, with what they name as their model."""

    model: Int64s
    models: tuple[str, ...]


def find_requests(events: ServingEvents, relations: Relations) -> Requests:
    """The requests of a host, and the models that they name."""
    own_models = _models_of_groups(events)
    batches = set(events.group[events.of(*BATCHES)].tolist())
    # Whether or not these belong to any group.
    kinds = next((kinds for kinds in _REQUESTS if not events.occurring.isdisjoint(kinds)), ())
    plain = events.group[events.of(*kinds)].tolist() if kinds else []
    users = events.group[np.flatnonzero(events.is_user_root)].tolist()
    is_batching = kinds == _REQUESTS[0]
    models: dict[str, int] = {}
    found: dict[int, int] = {}

    def index(name: str) -> int:
        if not name or (name not in models and len(models) >= MAX_MODELS):
            return -1
        return models.setdefault(name, len(models))

    for group in dict.fromkeys(plain):
        if group not in batches:
            if is_batching:
                below = relations.children(group)
                named = [own_models[child] for child in below if child in own_models]
                # Without a batch the reference leaves the first model.
                found[group] = index(named[0] if named else "") if below else 0
            else:
                found[group] = index(own_models.get(group, ""))
    for group in dict.fromkeys(users):
        if group in batches or group in found:
            continue
        if group in own_models:
            found[group] = index(own_models[group])
            continue
        below = relations.children(group)
        indices = {index(own_models[child]) for child in below if child in own_models}
        found[group] = (indices.pop() if len(indices) == 1 else -1) if below else 0
    ids = np.array(sorted(found), np.int64)
    return Requests(ids, np.array([found[int(group)] for group in ids], np.int64), tuple(models))


def _models_of_groups(events: ServingEvents) -> dict[int, str]:
    """The model that each group names; what users mark counts over what servers record."""
    rows = np.concatenate([events.of(*_NAMES_MODEL), np.flatnonzero(events.is_user_root)])
    code = events.texts["model_id"][rows]
    rows, code = rows[code >= 0], code[code >= 0]
    pairs = zip(events.group[rows].tolist(), code.tolist(), strict=True)
    return {group: events.table[text] for group, text in pairs}
