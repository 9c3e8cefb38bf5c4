"""The derived lines of a plane, by what the plane is."""

from collections.abc import Mapping
from functools import cached_property

from podscope_analyzers.derived.host import program_lines
from podscope_analyzers.derived.launches import Launches, launch_line, step_launches
from podscope_analyzers.derived.scopes import scope_parents
from podscope_analyzers.derived.streams import stream_lines
from podscope_analyzers.derived.tensor_core import tensor_core_lines
from podscope_analyzers.hlo.programs import Programs, read_programs
from podscope_analyzers.planes import HOST_PLANE, is_gpu, is_tensor_core
from podscope_analyzers.prepared import PreparedLine, PreparedPlane, PreparedSpace


class LineDeriver:
    """Makes the derived lines of a space's planes, each when it is asked for.

    Args:
        space: With its events grouped.
    """

    def __init__(self, space: PreparedSpace) -> None:
        self._space = space

    def __call__(self, plane: PreparedPlane) -> tuple[PreparedLine, ...]:
        """The plane's lines; none for a plane that is no device and not the host's."""
        if is_gpu(plane.name):
            launches = launch_line(plane, self._launches.get(id(plane)))
            return (*launches, *stream_lines(plane, self._programs, self._scopes))
        if is_tensor_core(plane.name):
            return tensor_core_lines(plane)
        if plane.name == HOST_PLANE:
            return program_lines(plane)
        return ()

    @cached_property
    def _programs(self) -> Programs:
        return read_programs(self._space)

    @cached_property
    def _scopes(self) -> Mapping[int, int]:
        return scope_parents(self._space.source)

    @cached_property
    def _launches(self) -> Mapping[int, Launches]:
        gpus = [plane for plane in self._space.planes if is_gpu(plane.name)]
        host = self._space.host_plane
        found = step_launches(host) if host is not None else {}
        # Launches number the devices as the file lists them, whatever these are called.
        return {id(plane): found[at] for at, plane in enumerate(gpus) if at in found}
