"""Devices in tiles, as XLA brings them into one form when it loads a program."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_protos.v1 import hlo_pb2

_KIND: Final = hlo_pb2.OpSharding
# The order of what groups of devices hold: replicas are last.
_ORDER: Final = (_KIND.MANUAL, _KIND.UNREDUCED, _KIND.REPLICATED)
# More than the largest machines have: 23 bytes of an iota may have to be listed one by one.
_MAX_DEVICES: Final = 1 << 16
_MAX_COUNT: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Iota:
    """Devices counted up in one shape and transposed.

    Attributes:
        sizes: Of the shape.
        permutation: Of its dimensions.
    """

    sizes: tuple[int, ...]
    permutation: tuple[int, ...]

    def merged(self) -> "Iota":
        """The same with neighbouring dimensions made one wherever that changes nothing."""
        sizes, permutation = self.sizes, self.permutation
        # Damaged sizes stay as they are: their products may have thousands of digits.
        if any(size <= 0 for size in sizes) or prod(sizes) > _MAX_COUNT:
            return self
        wide = [axis for axis in permutation if 0 <= axis < len(sizes) and sizes[axis] != 1]
        if sorted(permutation) != list(range(len(sizes))) or not wide:
            return self
        kept = sorted(wide)
        before = {axis: kept[at - 1] if at else None for at, axis in enumerate(kept)}
        runs: list[list[int]] = []
        for axis in wide:
            if runs and runs[-1][-1] == before[axis]:
                runs[-1].append(axis)
            else:
                runs.append([axis])
        stored = sorted(runs)
        return Iota(
            tuple(prod(sizes[axis] for axis in run) for run in stored),
            tuple(stored.index(run) for run in runs),
        )

    def split(self, tile: Sequence[int]) -> "tuple[Iota, list[list[int]]] | None":
        """The same in dimensions that do not cross those of a tile; None if there are none such.

        Returns:
            The iota, and of every dimension of the tile the places in its permutation.
        """
        known = self.merged()
        pieces: dict[int, list[int]] = {axis: [] for axis in range(len(known.sizes))}
        left = [(axis, known.sizes[axis]) for axis in reversed(known.permutation)]
        order: list[tuple[int, int]] = []
        places: list[list[int]] = []
        for wanted in tile:
            places.append([])
            while wanted > 1 and left:
                axis, size = left.pop()
                if size > wanted and size % wanted == 0:
                    left.append((axis, size // wanted))
                    size = wanted
                if wanted % size:
                    return None
                wanted //= size
                places[-1].append(len(order))
                order.append((axis, len(pieces[axis])))
                pieces[axis].append(size)
        starts = np.cumsum([0, *map(len, pieces.values())]).tolist()
        sizes = tuple(size for axis in pieces for size in pieces[axis])
        return Iota(sizes, tuple(starts[axis] + piece for axis, piece in order)), places

    def transposed(self, tile: Sequence[int], order: Sequence[int]) -> "Iota | None":
        """The devices of a tile whose dimensions take another order; None if no iota has them.

        Args:
            tile: Sizes of the tile before.
            order: Which of its dimensions comes at each place.
        """
        moved = [at for at in order if tile[at] != 1]
        if moved == sorted(moved):
            return self
        found = self.split(tile)
        if found is None:
            return None
        whole, places = found
        axes = (whole.permutation[place] for at in order for place in places[at])
        return Iota(whole.sizes, tuple(axes)).merged()

    def listed(self) -> NDArray[np.int64]:
        """The devices in order, shape (n,)."""
        counted = np.arange(prod(self.sizes), dtype=np.int64).reshape(self.sizes)
        return counted.transpose(self.permutation).reshape(-1)


@dataclass(frozen=True)
class DeviceTiles:
    """How devices are spread over the dimensions of a value, and over what is no dimension.

    Attributes:
        sizes: Of the tile, those of ``kinds`` last.
        devices: In the tile's order.
        kinds: What the groups along the last sizes hold.
    """

    sizes: tuple[int, ...]
    devices: Iota | tuple[int, ...]
    kinds: tuple[hlo_pb2.OpSharding.Type, ...]

    @property
    def only_kind(self) -> hlo_pb2.OpSharding.Type | None:
        """What every device holds of the value, where all hold the same."""
        if prod(self.sizes) == 1:
            is_first = self.devices == (0,) or isinstance(self.devices, Iota)
            return _KIND.REPLICATED if is_first else None
        first = len(self.sizes) - len(self.kinds)
        if first < 0 or prod(self.sizes[:first]) != 1:
            return None
        if set(self.kinds) == {_KIND.UNREDUCED}:
            return _KIND.UNREDUCED
        wide = {kind for kind, size in zip(self.kinds, self.sizes[first:], strict=True) if size > 1}
        return next(iter(wide)) if wide in ({_KIND.MANUAL}, {_KIND.REPLICATED}) else None

    def canonical(self) -> "DeviceTiles":
        """Groups of one kind made one, groups of one device left out, kinds in XLA's order."""
        first = len(self.sizes) - len(self.kinds)
        if not self.kinds or first < 0 or not self._is_whole():
            return self
        by_kind: dict[hlo_pb2.OpSharding.Type, list[int]] = {}
        for at, kind in enumerate(self.kinds, first):
            if self.sizes[at] != 1:
                by_kind.setdefault(kind, []).append(at)
        if not set(by_kind) <= set(_ORDER):
            return self
        kinds = tuple(kind for kind in _ORDER if kind in by_kind)
        kept = [*range(first), *(at for kind in kinds for at in by_kind[kind])]
        dropped = [at for at in range(first, len(self.sizes)) if at not in kept]
        merged = (prod(self.sizes[at] for at in by_kind[kind]) for kind in kinds)
        sizes = (*self.sizes[:first], *merged)
        devices = self._transposed([*kept, *dropped])
        if kinds and kinds[-1] == _KIND.REPLICATED:
            devices = _sorted(devices, sizes[-1])
        return DeviceTiles(sizes, devices, kinds)

    def _is_whole(self) -> bool:
        """Whether there is one device for every place, as sound programs have it."""
        count = prod(self.sizes)
        # Two negative sizes have a positive product.
        if min(self.sizes) <= 0 or count > _MAX_DEVICES:
            return False
        if isinstance(self.devices, tuple):
            return len(self.devices) == count
        axes = range(len(self.devices.sizes))
        is_order = sorted(self.devices.permutation) == list(axes)
        is_positive = all(size > 0 for size in self.devices.sizes)
        return is_order and is_positive and prod(self.devices.sizes) == count

    def _transposed(self, order: list[int]) -> Iota | tuple[int, ...]:
        if isinstance(self.devices, Iota):
            found = self.devices.transposed(self.sizes, order)
            if found is not None:
                return found
            listed = self.devices.listed()
        else:
            listed = np.array(self.devices, np.int64)
        moved = listed.reshape(self.sizes).transpose(order).reshape(-1)
        return tuple(moved.tolist())


def _sorted(devices: Iota | tuple[int, ...], size: int) -> Iota | tuple[int, ...]:
    """The devices with those of every group of replicas in order, which means the same."""
    if isinstance(devices, Iota):
        found = devices.split((prod(devices.sizes) // size, size))
        if found is not None:
            finer, (before, group) = found
            axes = [*before, *sorted(group, key=lambda place: finer.permutation[place])]
            return Iota(finer.sizes, tuple(finer.permutation[place] for place in axes)).merged()
        devices = tuple(devices.listed().tolist())
    ordered = np.sort(np.array(devices, np.int64).reshape(-1, size), axis=1).reshape(-1)
    return tuple(ordered.tolist())
