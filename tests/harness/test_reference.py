"""`harness.registry`: docs/harness.md holds what the registries say."""

from pathlib import Path

from scripts.harness_reference import BEGIN, END, embed

from evotrainer.harness.metrics import METRICS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "harness.md"


def test_the_reference_in_the_docs_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    between = page.split(BEGIN)[1].split(END)[0]
    assert all(f"`{name}`" in between for name in METRICS)
    assert embed(page) == page, "run: python scripts/harness_reference.py docs/harness.md"
