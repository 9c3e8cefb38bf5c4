"""The documentation names every page, and no link in it leads nowhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
_PARTS = ("agent", "analyzers", "collector", "protos", "deploy/helm", "docs")


def _texts() -> list[Path]:
    texts = [*ROOT.glob("*.md")]
    for part in _PARTS:
        texts += [path for path in (ROOT / part).rglob("*.md") if "node_modules" not in path.parts]
    return sorted(texts)


def _links(text: Path) -> Iterator[Path]:
    for target in _LINK.findall(text.read_text(encoding="utf-8")):
        if "://" not in target:
            yield (text.parent / target).resolve()


@pytest.mark.parametrize("text", _texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(text: Path) -> None:
    assert [str(target) for target in _links(text) if not target.exists()] == []


def test_every_guide_reference_and_decision_is_in_its_index() -> None:
    index = set(_links(DOCS / "README.md"))
    for folder in ("guide", "reference"):
        assert set((DOCS / folder).glob("*.md")) - index == set()
    decisions = DOCS / "decisions"
    listed = set(_links(decisions / "README.md"))
    assert set(decisions.glob("*.md")) - listed == {decisions / "README.md"}
