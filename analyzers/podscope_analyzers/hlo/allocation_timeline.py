"""The picture of a program's allocations, addresses by positions, as a page and as a DOT graph.

Both draw the same rectangles on one square canvas, so a browser shows the page without loading
anything, and whoever reads the reference's graph finds the same graph in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from podscope_analyzers.hlo.memory_usage import Block, MemoryUsage
from podscope_analyzers.html_text import escape

CANVAS_POINTS: Final = 4096
CONTAINER_COLOR: Final = "#ffffff"
# Neighbouring blocks shall differ; what a colour means is nowhere said.
PALETTE: Final = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948",
    "#e15759", "#9c755f", "#ff9da7", "#86bcb6", "#d4a6c8", "#8cd17d",
)  # fmt: skip

_POINTS_PER_INCH: Final = 72
_SMALLEST_FONT, _LARGEST_FONT = 8.0, 14.0
_FONT_PER_HEIGHT: Final = 0.6
_CHAR_PER_FONT: Final = 0.55
_LINE_PER_FONT: Final = 1.2
_MARGIN_POINTS: Final = 1.44
_ELLIPSIS: Final = "..."


@dataclass(frozen=True)
class Rectangle:
    """A block on the canvas, in points; y counts upwards.

    Attributes:
        label: As much of the name as fits.
    """

    block: Block
    x: float
    y: float
    width: float
    height: float
    font: float
    label: str
    color: str


def block_colors(usage: MemoryUsage) -> Iterator[tuple[Block, str]]:
    """Every block with its colour, which is that of its bar if it is in use at the peak.

    Others take the number of rectangles drawn so far: too small ones do not count.
    """
    bars = {one.buffer.id: i for i, one in enumerate(usage.peak_buffers) if one.buffer}
    scale_x, scale_y = _scales(usage.blocks)
    drawn = 0
    for block in usage.blocks:
        if block.buffer is None:
            color = CONTAINER_COLOR
        else:
            color = PALETTE[bars.get(block.buffer.id, drawn) % len(PALETTE)]
        yield block, color
        width, height = (block.end - block.begin) * scale_x, block.size_bytes * scale_y
        drawn += width >= 1 and height >= 1


def rectangles(usage: MemoryUsage) -> list[Rectangle]:
    """The blocks that are a point wide and high at least."""
    scale_x, scale_y = _scales(usage.blocks)
    found = []
    for block, color in block_colors(usage):
        width, height = (block.end - block.begin) * scale_x, block.size_bytes * scale_y
        if width >= 1 and height >= 1:
            x, y = block.begin * scale_x, block.offset_bytes * scale_y
            font = min(max(_FONT_PER_HEIGHT * height, _SMALLEST_FONT), _LARGEST_FONT)
            name = block.buffer.instruction.name if block.buffer else ""
            label = _fitted(name, width, height, font)
            found.append(Rectangle(block, x, y, width, height, font, label, color))
    return found


def _scales(blocks: Sequence[Block]) -> tuple[float, float]:
    containers = [block for block in blocks if block.buffer is None]
    end = max((block.end for block in containers), default=0)
    total = sum(block.size_bytes for block in containers)
    return (CANVAS_POINTS / end, CANVAS_POINTS / total) if end and total else (0.0, 0.0)


def _fitted(name: str, width: float, height: float, font: float) -> str:
    if height - 2 * _MARGIN_POINTS < _LINE_PER_FONT * font:
        return ""
    fitting = int((width - 2 * _MARGIN_POINTS) / (_CHAR_PER_FONT * font))
    if len(name) <= fitting:
        return name
    return name[: fitting - len(_ELLIPSIS)] + _ELLIPSIS if fitting > len(_ELLIPSIS) else ""


def dot_graph(drawn: Sequence[Rectangle], buffer_counts: Mapping[int, int]) -> str:
    """The rectangles as a graph for Graphviz' ``neato``.

    Args:
        drawn: What to draw.
        buffer_counts: Buffers of each allocation by its index.
    """
    lines = [
        "graph G {",
        " epsilon=0.5 ",
        " inputscale=72 ",
        ' node [shape=box,style=filled,fontname="Arial",margin="0.02,0.02"];',
    ]
    for number, one in enumerate(drawn):
        color = one.color + ("ff" if one.block.buffer is None else "")
        center = (one.x + one.width / 2, one.y + one.height / 2)
        lines.append(
            f'"{number}" [tooltip="{_quoted(tooltip(one.block, buffer_counts))}", '
            f'pos="{center[0]:.2f},{center[1]:.2f}!", width="{one.width / _POINTS_PER_INCH:.4f}", '
            f'height="{one.height / _POINTS_PER_INCH:.4f}", fixedsize=true, color="{color}", '
            f'fontsize={one.font:.1f}, label="{_quoted(one.label)}"];'
        )
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def tooltip(block: Block, buffer_counts: Mapping[int, int]) -> str:
    """What is said of a block that is pointed at."""
    buffer = block.buffer
    if buffer is None:
        count = buffer_counts.get(block.allocation, 0)
        return (
            f"buffer_allocation_id:{block.allocation}\nsize:{block.size_bytes}\n"
            f"buffer_counts:{count}\n"
        )
    return (
        f"buffer_id:{buffer.id}\nhlo_op:{buffer.instruction.name}\nshape:{buffer.shape_text}\n"
        f"size:{block.size_bytes}\nunpadded_size:{buffer.unpadded_bytes}\n"
        f"offset:{buffer.offset_bytes}\nspan:({block.begin},{block.end})"
    )


_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Memory allocation timeline: {title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; font-family: Arial, sans-serif; background: light-dark(#fff, #14181d); }}
svg {{ display: block; width: 100vw; height: 100vh; }}
rect {{ stroke: #14181d; stroke-width: .5; cursor: default; }}
rect:hover {{ stroke-width: 3; }}
text {{ fill: #14181d; text-anchor: middle; dominant-baseline: central; pointer-events: none; }}
</style>
</head>
<body>
<svg viewBox="0 0 {canvas} {canvas}" preserveAspectRatio="none" role="img"
 aria-label="Memory allocations of {title}: addresses upwards, positions to the right">
{shapes}
</svg>
<script type="text/vnd.graphviz" id="dot">
{dot}
</script>
</body>
</html>
"""
_NOTHING: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>No memory allocation timeline</title></head>
<body style="font-family: sans-serif; padding: 20px">
<h2>No memory allocation timeline available</h2>
<p>The compiler recorded no heap trace for this program and memory space.</p>
</body></html>
"""


def timeline_page(usage: MemoryUsage) -> str:
    """The picture as one HTML page that loads nothing; with the DOT graph in it."""
    drawn = rectangles(usage)
    if not drawn:
        return _NOTHING
    counts = {one.proto.index: len(one.proto.assigned) for one in usage.allocations}
    shapes = []
    for one in drawn:
        top = CANVAS_POINTS - one.y - one.height
        told = escape(tooltip(one.block, counts).strip())
        shapes.append(
            f'<rect x="{one.x:.2f}" y="{top:.2f}" width="{one.width:.2f}" '
            f'height="{one.height:.2f}" fill="{one.color}"><title>{told}</title></rect>'
        )
        if one.label:
            shapes.append(
                f'<text x="{one.x + one.width / 2:.2f}" y="{top + one.height / 2:.2f}" '
                f'font-size="{one.font:.1f}">{escape(one.label)}</text>'
            )
    # Only an end tag could end the script: a backslash breaks it, and DOT reads past it.
    dot = dot_graph(drawn, counts).replace("</", "<\\/")
    return _PAGE.format(
        title=escape(usage.program.title),
        canvas=CANVAS_POINTS,
        shapes="\n".join(shapes),
        dot=dot,
    )
