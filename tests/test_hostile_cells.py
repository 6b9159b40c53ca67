"""Cells that could break a diff, a pattern or a page: advice keeps them character by character."""

import pytest

from oommagic.cell import diff, parse_typed
from oommagic.explain.advice.engine import findings_of
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.rules.smaller_batch import SmallerBatch
from oommagic.explain.advice.typed import TypedCell

pytestmark = pytest.mark.of_ipython

HOSTILE = {
    "quotes": """s = 'it\\'s' + "\\"" + '''"'"' '''; t = ""  # it's "so" '''""",
    "braces": "s = '{' + '}}' + '{{x}}' + f'{{{1}}}' + '{0!r:>{1}}' + '${HOME}'  # {{ }} }",
    "markup": "s = '</script><script>alert(1)</script><!-- &amp; <b onclick=\"x()\">'  # </pre>-->",
    "formats": "s = '%s %(x)d %%' if 0 else '%'  # %s {} %(x)s %",
    "backslashes": r"s = '\\' + r'\d\1\g<0>' + '\x3c\N{BULLET}'  # \1 \\ \u",
    "doubtful escapes": r"s = '\d\w\('",
    "surrogates as typed": r"s = '\ud800\udfff'  # escaped",
    "real surrogates": "s = '\ud83d \udc00'  # \udfff",
    "nulls": "s = 'a\x00b'",
    "controls": "s = 'a\x1b[31m\x07\x85\u2028\u2029\x0c'  # \u202e\u2066 \x85 more \u2028 and more",
    "form feeds": "\x0cs = 1\x0c\n\x0c",
    "other line ends": "s = 'a\x0bb\x1cc\x1d'; t = 1\r",
    "combining": "é = 'e\u0301\u200d👩\u200d👧'  # ﷽ e\u0301",
    "a diff's marks": "s = '''\n--- a\n+++ b\n@@ -1 +1 @@\n'''\n+1\n-1",
    "depth": f"s = {'(' * 90}1{')' * 90}",
    "too much depth": f"s = {'-' * 100_000}1",
    "length": f"s = '{'x' * 200_000}'",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_cell_is_kept_character_by_character(text: str) -> None:
    cell = f"{text}\nmodel.fit(x, y, batch_size=128, note='é')  # {{}} %s \\1 <b>\n{text}"
    wanted = cell.replace("batch_size=128,", "batch_size=96,")
    found = findings_of(TypedCell(cell), STEP_OF_96, [SmallerBatch()])
    fixes = [one.fix for one in found if one.fix is not None]
    assert [fix.source for fix in fixes] == ([wanted] if parse_typed(cell).body else [])
    assert all(fix.diff == diff(cell, wanted) for fix in fixes)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_rule_fails_on_a_hostile_cell(text: str) -> None:
    for cell in (text, f"{text}\nmodel.fit(x, y, batch_size=128)", f"def f(x):\n    pass\n{text}"):
        for finding in findings_of(TypedCell(cell), STEP_OF_96):
            assert finding.fix is None or text in finding.fix.source
