"""Text for HTML. The standard library's module for it loads the names of all characters too."""


def escape(text: str, *, quote: bool = True) -> str:
    """The text with what HTML would read as markup escaped; with ``quote``, quotation marks too."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#x27;") if quote else text
