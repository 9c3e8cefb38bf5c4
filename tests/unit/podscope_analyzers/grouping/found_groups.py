"""The groups of a prepared space, as tests look at them."""

from collections.abc import Callable

from podscope_analyzers import XSpace
from podscope_analyzers.grouping.groups import Groups
from podscope_analyzers.prepared import PreparedSpace

SpaceMaker = Callable[..., XSpace]
HOST = "/host:CPU"
GPU = "/device:GPU:0"
TPU = "/device:TPU:0"
SPARSE = "/device:TPU:0 SparseCore 0"


def groups_by_event(space: PreparedSpace, plane: str | None = None) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in space.planes:
        if plane is not None and each.name != plane:
            continue
        for line in each.lines:
            if line.is_derived:
                continue
            columns = line.columns()
            for row, group in zip(columns.metadata, line.group_id, strict=True):
                found.setdefault(each.event_metadata.names[int(row)], []).append(int(group))
    return found


def all_groups(space: PreparedSpace) -> set[int]:
    return {g for groups in groups_by_event(space).values() for g in groups}


def group_names(space: PreparedSpace) -> list[str]:
    assert isinstance(space.groups, Groups)
    return [space.groups.name(g) for g in range(len(space.groups))]
