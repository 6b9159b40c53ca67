"""The table of what articles advise: what it names is there, and nothing goes unanswered."""

import re
import runpy
from typing import Any

import pytest
from children import ROOT

from oommagic.explain.advice.rules import RULES

ARTICLES: tuple[Any, ...] = runpy.run_path(str(ROOT / "docs" / "articles.py"))["ARTICLES"]
PROGRAMS = runpy.run_path(str(ROOT / "bench" / "advice" / "programs.py"))["PROGRAMS"]
ADVICE = [(article.title, advice) for article in ARTICLES for advice in article.advice]

pytestmark = pytest.mark.of_ipython
each_piece = pytest.mark.parametrize(
    "advice", [one for _, one in ADVICE], ids=[f"{title[:20]}: {one.says}" for title, one in ADVICE]
)


@each_piece
def test_every_piece_of_advice_has_a_rule_that_exists_or_a_part_of_oommagic(advice: Any) -> None:
    assert set(advice.rules) <= {rule.name for rule in RULES}
    assert len(set(advice.rules)) == len(advice.rules)
    assert advice.rules or advice.answer


@each_piece
def test_what_is_measured_is_a_program_of_the_bench(advice: Any) -> None:
    assert advice.program in {"", *(one.name for one in PROGRAMS)}


@each_piece
def test_what_answers_it_is_a_page_of_the_docs(advice: Any) -> None:
    for page in re.findall(r"\]\(([^)#]+)", advice.answer):
        assert (ROOT / "docs" / page).is_file()


def test_advice_is_not_given_twice_by_one_article() -> None:
    assert len({(title, one.says) for title, one in ADVICE}) == len(ADVICE)
