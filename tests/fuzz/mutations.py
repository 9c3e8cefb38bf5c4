"""Damage to XSpaces: at the level of bytes, of protobuf fields, and of what a file means."""

import gzip
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

# Which fields of a message hold messages: field number -> kind.
_KINDS: Final = {
    "space": {1: "plane"},
    "plane": {3: "line", 4: "event entry", 5: "stat entry", 6: "stat"},
    "line": {4: "event"},
    "event": {4: "stat"},
    "event entry": {2: "event metadata"},
    "stat entry": {2: "stat metadata"},
    "event metadata": {5: "stat"},
    # HLO programs and core details are messages in bytes.
    "stat": {6: "any"},
    "any": dict.fromkeys(range(1, 64), "any"),
}
_NUMBERS: Final = (
    0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32, 2**35, 2**47, 2**61, 2**62, 2**63 - 1, 2**63,
    2**64 - 1, 2**64 - 559_038_737,
)  # fmt: skip


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def packed(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(at)


def fields_of(raw: bytes) -> list[tuple[int, bytes]]:
    """Keys and payloads of a message.

    Raises:
        ValueError, IndexError: it is none.
    """
    found = []
    at = 0
    while at < len(raw):
        key, at = _read_varint(raw, at)
        match key & 7:
            case 0:
                end = _read_varint(raw, at)[1]
            case 1:
                end = at + 8
            case 2:
                size, at = _read_varint(raw, at)
                end = at + size
            case 5:
                end = at + 4
            case _:
                raise ValueError(at)
        if end > len(raw) or key < 8:
            raise ValueError(at)
        found.append((key, raw[at:end]))
        at = end
    return found


def message(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """The message of some fields."""
    return b"".join(
        varint(key) + (varint(len(payload)) if key & 7 == 2 else b"") + payload
        for key, payload in fields
    )


def flip(raw: bytes, rng: Random, seeds: Sequence[bytes]) -> bytes:
    """A few bytes changed."""
    del seeds
    out = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(out))
        out[at] = rng.randrange(256) if rng.random() < 0.5 else out[at] ^ 1 << rng.randrange(8)
    return bytes(out)


def cut(raw: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """The end missing."""
    return raw[: rng.randrange(len(raw))]


def splice(raw: bytes, rng: Random, seeds: Sequence[bytes]) -> bytes:
    """A piece of another file, or of the same, put in or put over."""
    other = rng.choice(seeds)
    begin = rng.randrange(len(other))
    piece = other[begin : begin + rng.choice((1, 3, 9, 100, 2000))]
    at = rng.randrange(len(raw))
    return raw[:at] + piece + raw[at + rng.choice((0, len(piece), rng.randrange(50))) :]


def _bad_number(rng: Random) -> bytes:
    return rng.choice(
        (
            b"\xff" * 9 + b"\x01",
            b"\xff" * 9 + b"\x7f",
            b"\xff" * 11,
            b"\x80" * 9 + b"\x00",
            b"\x80\x80\x00",
            b"\x80",
            varint(rng.choice(_NUMBERS)),
        )
    )


def overflow(raw: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """A number that is too long, or too large, in place of a field's value."""
    at = rng.randrange(len(raw))
    return raw[:at] + _bad_number(rng) + raw[at + rng.randrange(3) :]


def _inflate(fields: list[tuple[int, bytes]], rng: Random, _: str) -> bytes:
    """A length beyond its message."""
    at = rng.randrange(len(fields))
    key, payload = fields[at]
    more = rng.choice((1, 2, 100, 2**20, 2**31, 2**32, 2**63 - 1, 2**64 - 1))
    size = (len(payload) + more) % 2**64
    broken = varint(key & ~7 | 2) + varint(size) + payload
    return message(fields[:at]) + broken + message(fields[at + 1 :])


def _numbers(fields: list[tuple[int, bytes]], rng: Random, _: str) -> bytes:
    """Ids, times and counts at the ends of their range."""
    numbers = [at for at, (key, _) in enumerate(fields) if key & 7 == 0]
    for at in rng.sample(numbers, min(len(numbers), rng.choice((1, 1, 3)))):
        fields[at] = fields[at][0], varint(rng.choice(_NUMBERS))
    return message(fields)


def _retype(fields: list[tuple[int, bytes]], rng: Random, _: str) -> bytes:
    """A field under another number or type."""
    at = rng.randrange(len(fields))
    key, payload = fields[at]
    key = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 11)) << 3 | rng.choice((key & 7, key & 7, 2))
    fields[at] = key, payload
    return message(fields)


def _repeat(fields: list[tuple[int, bytes]], rng: Random, _: str) -> bytes:
    """A field many times over."""
    at = rng.randrange(len(fields))
    size = len(fields[at][1]) + 8
    times = min(rng.choice((2, 3, 20, 400)), max(2, 60_000 // size))
    return message(fields[:at] + [fields[at]] * times + fields[at + 1 :])


def _shuffle(fields: list[tuple[int, bytes]], rng: Random, _: str) -> bytes:
    """Fields in another order, some of them missing."""
    rng.shuffle(fields)
    return message(fields[rng.randrange(max(1, len(fields) // 3)) :])


def _wrap(fields: list[tuple[int, bytes]], rng: Random, kind: str) -> bytes:
    """Messages in messages, deep."""
    del kind
    inner = message(fields)[:200]
    number = rng.choice((1, 2, 3, 4, 5, 6, 40))
    for _ in range(rng.choice((50, 99, 101, 3000))):
        inner = packed(number, inner)
    return message(fields) + inner


def _text(fields: list[tuple[int, bytes]], rng: Random, _: str) -> bytes:
    """A text that is long, is no text, or is one that code looks for."""
    texts = [at for at, (key, _) in enumerate(fields) if key & 7 == 2]
    if texts:
        at = rng.choice(texts)
        text = rng.choice(
            (b"", b"\xff\xfe", b"x" * 70_000, b"\xed\xa0\x80", b"Iterator::Prefetch::Generator",
             b"/device:TPU:99999999999999999999", b"/device:TPU:", b"/device:GPU:0", b"Steps",
             b"XLA Ops", b"XLA Modules", b"/host:CPU", b"/host:metadata", b"Framework Ops",
             b"/device:TPU:0 SparseCore 0", b"Task Environment", b"a\x00b", b"%d{}:::/",
             "\u202e\U0001f600".encode())
        )  # fmt: skip
        fields[at] = fields[at][0], text
    return message(fields)


def _bomb(fields: list[tuple[int, bytes]], rng: Random, kind: str) -> bytes:
    """A stat that unpacks to a thousand times its size."""
    bomb = gzip.compress(bytes(rng.choice((1 << 20, 40 << 20))), 9, mtime=0)
    if kind == "stat":
        return message([field for field in fields if field[0] >> 3 == 1]) + packed(8, bomb)
    return message(fields) + packed(6, b"\x08\x01" + packed(8, bomb))


_FIELD_MUTATIONS: Final = (
    _inflate, _numbers, _numbers, _numbers, _retype, _repeat, _shuffle, _wrap, _text, _text,
)  # fmt: skip


def within(raw: bytes, rng: Random, kind: str = "space") -> bytes:
    """A mutation of one message somewhere in the tree, the lengths around it kept right."""
    fields = fields_of(raw)
    if not fields:
        return raw
    inner = _KINDS.get(kind, {})
    below = [at for at, (key, _) in enumerate(fields) if key & 7 == 2 and key >> 3 in inner]
    if below and rng.random() < 0.85:
        at = rng.choice(below)
        key, payload = fields[at]
        try:
            fields[at] = key, within(payload, rng, inner[key >> 3])
            return message(fields)
        except (ValueError, IndexError):
            pass
    mutate = _bomb if rng.random() < 0.004 else rng.choice(_FIELD_MUTATIONS)
    return mutate(fields, rng, kind)


def _many_fields(rng: Random) -> bytes:
    """Metadata without end, of entries as small as they can be or with a little in each."""
    count = rng.choice((2_000, 20_000, 200_000))
    number = rng.choice((4, 5))
    value = rng.choice((b"", packed(2, b"\x12\x01a"), packed(2, packed(5, b"\x08\x01\x20\x01"))))
    step = rng.choice((1, 1, 977, 1 << 40))
    return b"".join(
        packed(number, b"\x08" + varint(at * step % 2**64) + value) for at in range(count)
    )


def metadata_flood(raw: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """Far more metadata than events."""
    name = rng.choice((b"/host:CPU", b"/device:TPU:0", b"/device:GPU:0", b"/host:metadata"))
    return raw + packed(1, packed(2, name) + _many_fields(rng))


def plane_flood(raw: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """Planes or lines without end."""
    name = packed(2, rng.choice((b"/host:CPU", b"/device:TPU:0", b"/device:GPU:1", b"")))
    if rng.random() < 0.5:
        return raw + packed(1, name) * rng.choice((300, 3_000, 20_000))
    line = rng.choice((b"", packed(2, b"Steps"), packed(4, b"\x10\x05\x18\x09")))
    return raw + packed(1, name + packed(3, line) * rng.choice((300, 3_000, 40_000)))


def event_flood(raw: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """Events of no bytes, or nested in each other without end."""
    name = packed(2, rng.choice((b"/host:CPU", b"/device:TPU:0", b"/device:GPU:1")))
    count = rng.choice((5_000, 100_000))
    if rng.random() < 0.3:
        events = packed(4, b"") * count
    else:
        deepest = 1 << 40
        events = b"".join(
            packed(4, b"\x08\x01\x10" + varint(at) + b"\x18" + varint(deepest - 2 * at))
            for at in range(min(count, 30_000))
        )
    line = packed(2, rng.choice((b"XLA Ops", b"Steps", b"python"))) + events
    entry = packed(4, b"\x08\x01" + packed(2, packed(2, rng.choice((b"train 1", b"a:MatMul")))))
    return raw + packed(1, name + entry + packed(3, line))


def child_circle(raw: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """Metadata that are each other's children, on a plane whose operations are counted."""
    names = ("program_id", "symbol_id", "group_id")
    stats = b"".join(
        packed(5, b"\x08" + varint(at) + packed(2, b"\x08" + varint(at) + packed(2, name.encode())))
        for at, name in enumerate(names, start=1)
    )
    ids = b"\x08\x01\x20\x01"
    count = rng.choice((1, 2, 9))
    entries = b"".join(
        packed(
            4,
            b"\x08" + varint(at)
            + packed(
                2,
                packed(2, b"op") + packed(5, ids) + packed(5, b"\x08\x02\x20\x01")
                + b"".join(b"\x30" + varint(child) for child in range(count))
            ),
        )
        for at in range(count)
    )  # fmt: skip
    line = packed(2, b"XLA Ops") + packed(4, b"\x08\x01\x18\x05" + packed(4, b"\x08\x03\x20\x01"))
    return raw + packed(1, packed(2, b"/device:TPU:0") + stats + entries + packed(3, line))


def packed_file(raw: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """A packed file, whole, cut, or one that unpacks to far more."""
    if rng.random() < 0.1:
        return gzip.compress(raw + bytes(rng.choice((1 << 20, 64 << 20))), mtime=0)
    whole = gzip.compress(raw, 1, mtime=0)
    return whole if rng.random() < 0.3 else flip(whole, rng, ())


Mutation = Callable[[bytes, Random, Sequence[bytes]], bytes]
_FLOODS: Final[tuple[Mutation, ...]] = (metadata_flood, plane_flood, event_flood, child_circle)
_BYTES: Final[tuple[Mutation, ...]] = (flip, flip, cut, splice, overflow)


def mutate(seeds: Sequence[bytes], rng: Random) -> tuple[str, bytes]:
    """What was done, and the damaged file."""
    raw = rng.choice(seeds)
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        chance = rng.random()
        try:
            if chance < 0.70 and len(raw) < 1 << 20:
                raw, name = within(raw, rng), "within"
            elif chance < 0.988 or len(raw) > 1 << 20:
                one = rng.choice(_BYTES)
                raw, name = one(raw, rng, seeds), one.__name__
            elif chance < 0.994:
                raw, name = packed_file(raw, rng, seeds), "packed_file"
            else:
                one = rng.choice(_FLOODS)
                raw, name = one(raw, rng, seeds), one.__name__
        except (ValueError, IndexError):
            raw, name = flip(raw, rng, seeds) if raw else raw, "flip"
        done.append(name)
    return "+".join(done), raw
