import html

from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.html_text import escape


@given(st.text(alphabet="a<>&\"';#x27é"), st.booleans())
def test_escaping_is_the_standard_librarys(text: str, quote: bool) -> None:
    assert escape(text, quote=quote) == html.escape(text, quote=quote)
