"""Layouts and kernel metadata, read from instructions' texts."""

import pytest

from podscope_analyzers.op_metrics.kernel_metadata import kernel_metadata
from podscope_analyzers.op_metrics.layouts import result_layout


@pytest.mark.parametrize(
    ("shape", "bits", "hint", "padding"),
    [
        ("f32[16,256]{1,0:T(8,128)}", 32, "16: exact fit (2 x 8), 256: exact fit (2 x 128)", 0),
        ("u4[3,64]{1,0:T(8,128)(2,1)}", 4, "3: pad to 8 (1 x 8), 64: pad to 128 (1 x 128)", 13 / 3),
        # The minor dimension is the first one here.
        ("s8[100,4]{0,1:T(8,128)}", 8, "100: pad to 128 (1 x 128), 4: pad to 8 (1 x 8)", 1.56),
        ("f32[1000]{0:T(1024)}", 32, "1000: pad to 1024 (1 x 1024)", 0.024),
        ("f32[2,3]{1,0}", 32, "", 0),
        ("pred[]", 8, "", 0),
        ("(f32[5,8]{1,0:T(8)}, s32[])", 32, "8: exact fit (1 x 8)", 0),
    ],
)  # fmt: skip
def test_dimensions_are_padded_to_tiles(shape: str, bits: int, hint: str, padding: float) -> None:
    layout = result_layout(f"%x.1 = {shape} add(f32[7,7] %y)")
    assert layout is not None
    assert (layout.element_bits, layout.hint()) == (bits, hint)
    assert layout.padding_ratio == pytest.approx(padding)


@pytest.mark.parametrize("text", ["", "%x", "%x = token()", "%x = ", "x = f32[", "%x = f32[a]"])
def test_a_text_without_a_shape_has_no_layout(text: str) -> None:
    assert result_layout(text) is None


@pytest.mark.parametrize(
    "attribute",
    [
        'kernel_metadata={"xprof_metadata":{"block":[8,128]}}',
        'kernel_metadata={"xprof_metadata":"{\\"block\\":[8,128]}"}',
        r'kernel_metadata="{\"xprof_metadata\":{\"block\":[8,128]}}"',
    ],
)
def test_a_kernel_tells_its_author_s_metadata(attribute: str) -> None:
    text = f'%c = f32[8] custom-call(), custom_call_target="k", frontend_attributes={{{attribute}}}'
    assert kernel_metadata(text) == {"block": [8, 128]}


@pytest.mark.parametrize(
    "text",
    [
        "%c = f32[8] custom-call()",
        "xprof_metadata",
        "kernel_metadata={xprof_metadata",
        'kernel_metadata={"xprof_metadata":3}',
        'kernel_metadata={"xprof_metadata":"{"}',
        'kernel_metadata="xprof_metadata',
    ],
)
def test_damaged_kernel_metadata_is_none(text: str) -> None:
    assert kernel_metadata(text) is None
