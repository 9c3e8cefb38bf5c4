"""Errors of the analyzers."""

from typing import ClassVar

from podscope_protos.errors import ExitCode, PodscopeError


class AnalyzerError(PodscopeError):
    """Root of the analyzers' errors."""

    code: ClassVar[str] = "analyzer_error"
    exit_code: ClassVar[ExitCode] = ExitCode.INVALID_INPUT


class XSpaceError(AnalyzerError):
    """The bytes are not a valid XSpace.

    Attributes:
        offset: Position in the file, in bytes, of the field that is wrong.
        plane: Name of the plane, when it is known.
        line: Name of the line, when it is known.
    """

    code: ClassVar[str] = "invalid_xspace"

    def __init__(
        self, problem: str, *, offset: int, plane: str | None = None, line: str | None = None
    ) -> None:
        self.offset = offset
        self.plane = plane
        self.line = line
        # What is wrong from the first byte on is wrong with the whole file.
        where = [f"byte {offset}"] if offset else []
        if plane is not None:
            where.append(f"plane '{plane}'")
        if line is not None:
            where.append(f"line '{line}'")
        place = f" at {', '.join(where)}" if where else ""
        super().__init__(f"not a valid XSpace: {problem}{place}")


class CompilerMissingError(AnalyzerError):
    """The file is too large to be read without compiled kernels."""

    code: ClassVar[str] = "no_compiler"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        super().__init__(
            f"the file has {size >> 20} MiB, and without numba only files up to "
            f"{limit >> 20} MiB are read: pip install 'podscope[collector]'"
        )


class UnknownToolError(AnalyzerError):
    """No tool has this name."""

    code: ClassVar[str] = "unknown_tool"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class ParameterError(AnalyzerError):
    """A tool's parameter is unknown or out of range."""

    code: ClassVar[str] = "bad_parameter"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class PartialError(AnalyzerError):
    """A stored partial result cannot be read back.

    Attributes:
        is_newer: A newer podscope wrote it; any other is made again from the profile.
        is_lasting: It holds what was written, by this version: made again it would be the same.
    """

    code: ClassVar[str] = "bad_partial"

    def __init__(self, problem: str, *, is_newer: bool = False, is_lasting: bool = False) -> None:
        self.is_newer = is_newer
        self.is_lasting = is_lasting
        super().__init__(problem)


class ProgramError(AnalyzerError):
    """An HLO program contradicts itself."""

    code: ClassVar[str] = "bad_program"
