"""A scene as one page that draws itself and loads nothing."""

from collections.abc import Iterator
from typing import Final

from podscope_analyzers.hlo.graph.colours import colour
from podscope_analyzers.hlo.graph.scene import Box, Scene
from podscope_analyzers.hlo.text.shape_text import shape_text
from podscope_analyzers.html_text import escape

_MARGIN: Final = 16
_LETTERS: Final = 40
_STYLE: Final = (
    "body{margin:0;font:11.5px ui-monospace,monospace}"
    "rect{stroke:#4a525c}path{fill:none;stroke:#626a75}.group{fill:#f4f5f7}"
    "text{dominant-baseline:middle;text-anchor:middle}.centre{stroke-width:3}"
)


def svg_page(name: str, scene: Scene) -> str:
    """The scene as HTML with an SVG picture.

    Args:
        name: The instruction that it is around.
        scene: What is drawn.
    """
    width, height = scene.width + 2 * _MARGIN, scene.height + 2 * _MARGIN
    inner = "\n".join(_parts(name, scene))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(name)}'
        f"</title><style>{_STYLE}</style></head><body>\n"
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-_MARGIN} {-_MARGIN} {width:.0f} {height:.0f}">\n{inner}\n</svg>\n'
        "</body></html>\n"
    )


def _parts(name: str, scene: Scene) -> Iterator[str]:
    for group in scene.groups:
        yield _rectangle(group.box, "group", "")
        at = f'x="{group.box.x + group.box.width / 2:.1f}" y="{group.box.y + 14:.1f}"'
        yield f"<text {at}>{escape(group.fusion.proto.name[:_LETTERS])}</text>"
    for edge in scene.edges:
        (x, y), *rest = edge.points
        line = " ".join(f"L{a:.1f} {b:.1f}" for a, b in rest)
        title = escape(f"{edge.source} -> {edge.target}")
        yield f'<path d="M{x:.1f} {y:.1f} {line}"><title>{title}</title></path>'
    for node in scene.nodes:
        proto, box = node.neighbour.proto, node.box
        yield _rectangle(box, "centre" if proto.name == name else "", colour(proto.opcode))
        middle = box.x + box.width / 2
        lines = (proto.name, f"{proto.opcode} {shape_text(proto.shape, layout=False)}")
        for number, line in enumerate(lines):
            at = f'x="{middle:.1f}" y="{box.y + 13 + 15 * number:.1f}"'
            yield f"<text {at}>{escape(line[:_LETTERS])}</text>"


def _rectangle(box: Box, kind: str, fill: str) -> str:
    filled = f' fill="{fill}"' if fill else ""
    return (
        f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="4"{filled}/>'
    )
