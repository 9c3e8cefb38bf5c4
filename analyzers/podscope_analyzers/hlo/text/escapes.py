"""Texts inside HLO: C escapes, and JSON that stays as it is."""

from typing import Final

_NAMED: Final = {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    ord('"'): '\\"',
    ord("'"): "\\'",
    ord("\\"): "\\\\",
}
_ESCAPED: Final = [
    _NAMED.get(byte, chr(byte) if 32 <= byte <= 126 else f"\\{byte:03o}") for byte in range(256)
]
_BLANKS: Final = " \t\n\r"


def c_escaped(text: str | bytes) -> str:
    """The text with C escapes, byte by byte of its UTF-8."""
    raw = text.encode() if isinstance(text, str) else text
    return "".join(_ESCAPED[byte] for byte in raw)


def is_json_object(text: str) -> bool:
    """Whether the text is one pair of braces, with nothing but blanks around it.

    What is between the braces is not looked at, beyond strings and further braces.
    """
    text = text.strip(_BLANKS)
    if not text.startswith("{"):
        return False
    depth, in_string, is_escaped = 0, False, False
    for at, character in enumerate(text):
        if in_string:
            if is_escaped:
                is_escaped = False
            elif character == "\\":
                is_escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return at == len(text) - 1
    return False


def bare_or_quoted(raw: bytes) -> str:
    """A JSON object as it is, anything else in quotes with C escapes."""
    text = raw.decode("utf-8", "surrogateescape")
    if is_json_object(text):
        return raw.decode("utf-8", "replace")
    return f'"{c_escaped(raw)}"'
