"""Write the programs that JAX makes of many functions, and XLA's own cost of each, to a folder.

Run as ``python jax_programs.py FOLDER`` with eight CPU devices, by ``XLA_FLAGS``. Each function
gives ``NAME.lowered.pb`` and ``NAME.compiled.pb``, and beside each its cost as JSON.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, shard_map
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def ones(*sizes: int, kind: Any = jnp.float32) -> Any:
    return jnp.ones(sizes, kind)


X = ones(32, 64)
INDICES = jnp.arange(5)
MATRIX = np.eye(16, dtype=np.float32) * 3 + 0.1
GROUPS = jnp.array([4, 4, 4], jnp.int32)
IMAGE, KERNEL = ones(2, 16, 16, 8), ones(3, 3, 8, 16)


def convolve(image: Any, kernel: Any, strides: Any = (1, 1), pad: Any = "SAME", **more: Any) -> Any:
    labels = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(image, kernel, strides, pad, dimension_numbers=labels, **more)


def window(x: Any, start: float, operation: Any, sizes: Any, strides: Any, pad: str) -> Any:
    return lax.reduce_window(x, start, operation, sizes, strides, pad)


def pooled(x: Any) -> Any:
    return window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


def loss(weights: Any, x: Any) -> Any:
    return jnp.mean(jax.nn.gelu(x @ weights[0]) @ weights[1])


def layers(weights: Any, x: Any) -> Any:
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0]


def control_flow() -> dict[str, Program]:
    return {
        "conditional": (lambda p, x: lax.cond(p, jnp.sin, lambda y: y * 2, x), (True, X)),
        "switch": (
            lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda y: y @ y.T @ y], x),
            (1, X),
        ),
        "while": (
            lambda x: lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
            (X,),
        ),
        "scan": (lambda x: lax.scan(lambda c, y: (c + y, jnp.tanh(c)), x[0], x), (X,)),
        "scan_reverse": (
            lambda x: lax.scan(lambda c, y: (c + y, c), x[0], x, reverse=True, unroll=4),
            (X,),
        ),
        "map": (lambda x: lax.map(jnp.sort, x), (X,)),
        "layers": (layers, (ones(6, 64, 64), X)),
        "layers_gradient": (
            jax.grad(lambda w, x: jnp.sum(layers(w, x))),
            (ones(6, 64, 64), X),
        ),
        "remat": (jax.grad(lambda x: jnp.sum(jax.checkpoint(jnp.sin)(jnp.cos(x)))), (X,)),
        "barrier": (lambda x: lax.optimization_barrier((x, x + 1)), (X,)),
        "many_arguments": (lambda *a: sum(a), tuple(ones(4) for _ in range(23))),
        "nothing": (lambda: (), ()),
        "constants": (
            lambda x: (
                x + np.arange(64, dtype=np.float32),
                x[:2, :3] + np.array([[1.5, -np.inf, np.nan], [0.1, 1e-30, 3]], np.float32),
                np.arange(24).reshape(2, 3, 2, 2) + x[0, 0],
                jnp.array([1 + 2j, 3]) * x[0, 0],
            ),
            (X,),
        ),
    }


def linear_algebra() -> dict[str, Program]:
    solve = lax.linalg.triangular_solve
    return {
        "product": (lambda a, b: a @ b, (ones(128, 256), ones(256, 64))),
        "product_bf16": (
            lambda a, b: a @ b,
            (ones(128, 256, kind=jnp.bfloat16), ones(256, 64, kind=jnp.bfloat16)),
        ),
        "product_int8": (
            lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
            (ones(8, 16, kind=jnp.int8), ones(16, 4, kind=jnp.int8)),
        ),
        "product_precise": (
            lambda a, b: lax.dot(a, b, precision=lax.Precision.HIGHEST),
            (ones(8, 16), ones(16, 4)),
        ),
        "product_algorithm": (
            lambda a, b: lax.dot(a, b, precision="BF16_BF16_F32_X3"),
            (ones(8, 16), ones(16, 4)),
        ),
        "products": (
            lambda a, b: jnp.einsum("bij,bjk->bik", a, b),
            (ones(3, 8, 16), ones(3, 16, 4)),
        ),
        "ragged": (lax.ragged_dot, (ones(12, 8), ones(3, 8, 5), GROUPS)),
        "ragged_gradient": (
            jax.grad(lambda b, a, g: jnp.sum(lax.ragged_dot(a, b, g) ** 2)),
            (ones(3, 8, 5), ones(12, 8), GROUPS),
        ),
        "triangular": (lambda a, b: solve(a, b, left_side=True, lower=True), (MATRIX, ones(16, 4))),
        "triangular_right": (
            lambda a, b: solve(a, b, left_side=False, transpose_a=True, unit_diagonal=True),
            (MATRIX, ones(4, 16)),
        ),
        "cholesky": (jnp.linalg.cholesky, (MATRIX,)),
        "qr": (jnp.linalg.qr, (MATRIX,)),
        "svd": (jnp.linalg.svd, (MATRIX,)),
        "solve": (jnp.linalg.solve, (MATRIX, ones(16))),
        "mlp_gradient": (jax.grad(loss), ([ones(64, 128), ones(128, 8)], X)),
        "attention": (jax.nn.dot_product_attention, (ones(2, 16, 4, 8),) * 3),
        **{
            name: (function, (ones(8, 64),))
            for name, function in (
                ("fft", jnp.fft.fft),
                ("ifft", jnp.fft.ifft),
                ("rfft", jnp.fft.rfft),
                ("fft2", jnp.fft.fft2),
                ("fftn", jnp.fft.fftn),
            )
        },
        "irfft": (jnp.fft.irfft, (ones(8, 33, kind=jnp.complex64),)),
        "fft_of_48": (jnp.fft.fft, (ones(8, 48),)),
    }


def convolutions() -> dict[str, Program]:
    return {
        "convolution": (lambda x, k: convolve(x, k, (2, 1)), (IMAGE, KERNEL)),
        "convolution_valid": (lambda x, k: convolve(x, k, pad="VALID"), (IMAGE, KERNEL)),
        "convolution_dilated": (
            lambda x, k: convolve(
                x, k, pad=[(2, 1), (0, 3)], lhs_dilation=(2, 1), rhs_dilation=(1, 2)
            ),
            (IMAGE, KERNEL),
        ),
        "convolution_groups": (
            lambda x, k: convolve(x, k, feature_group_count=4),
            (IMAGE, ones(3, 3, 2, 16)),
        ),
        "convolution_batch_groups": (
            lambda x, k: convolve(x, k, batch_group_count=2),
            (ones(4, 16, 16, 8), KERNEL),
        ),
        "convolution_gradient": (
            jax.grad(lambda k, x: jnp.sum(convolve(x, k, (2, 2)) ** 2), argnums=(0, 1)),
            (KERNEL, IMAGE),
        ),
        "convolution_large": (convolve, (ones(2, 64, 64, 32), ones(5, 5, 32, 64))),
        "convolution_1d": (
            lambda x, k: lax.conv_general_dilated(
                x, k, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
            ),
            (ones(2, 17, 8), ones(4, 8, 16)),
        ),
    }


def data_movement() -> dict[str, Program]:
    return {
        "sort": (jnp.sort, (X,)),
        "argsort": (lambda x: jnp.argsort(x, axis=0, stable=True), (X,)),
        "sort_keys": (lambda x: lax.sort((x, x * 2, x * 3), num_keys=2), (X,)),
        "top_k": (lambda x: lax.top_k(x, 5), (X,)),
        "approximate_top_k": (lambda x: lax.approx_max_k(x, 5), (ones(4, 1024),)),
        "gather": (lambda x, i: x[i], (X, INDICES)),
        "gather_points": (lambda x, i: x[i, i], (X, INDICES)),
        "gather_batch": (
            jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (4,))),
            (X, jnp.arange(32)),
        ),
        "scatter_add": (lambda x, i, u: x.at[i].add(u), (X, INDICES, ones(5, 64))),
        "scatter_set": (
            lambda x, i, u: x.at[i].set(u, unique_indices=True, indices_are_sorted=True),
            (X, INDICES, ones(5, 64)),
        ),
        "scatter_batch": (
            jax.vmap(lambda x, i, u: x.at[i].add(u)),
            (X, jnp.zeros((32, 3), jnp.int32), ones(32, 3)),
        ),
        "embedding_gradient": (
            jax.grad(lambda e, i: jnp.sum(jnp.tanh(e[i]))),
            (ones(128, 16), jnp.arange(50) % 7),
        ),
        "slices": (
            lambda x: (x[1:5, 2:30:3], lax.rev(x, (0,)), jnp.roll(x, 3), x.T.reshape(-1)),
            (X,),
        ),
        "pads": (
            lambda x: (jnp.pad(x, ((1, 2), (0, 3))), lax.pad(x, 0.0, ((1, 1, 2), (-1, 0, 0)))),
            (X,),
        ),
        "dynamic": (
            lambda x, i: (
                lax.dynamic_slice(x, (i, 0), (4, 64)),
                lax.dynamic_update_slice(x, x[:4], (i, i)),
            ),
            (X, 3),
        ),
        "dynamic_fused": (
            lambda x, i: jnp.exp(lax.dynamic_update_slice(x * 2, x[:4] + 1, (i, 0))),
            (X, 3),
        ),
        "concatenation": (lambda x: jnp.concatenate([x, x * 2], 1), (X,)),
        "bits": (lambda x: (lax.bitcast_convert_type(x, jnp.int32), x.astype(jnp.int4)), (X,)),
        "callback": (
            lambda x: jax.pure_callback(
                lambda a: np.asarray(a) + 1, jax.ShapeDtypeStruct((32, 64), jnp.float32), x
            ),
            (X,),
        ),
    }


def reductions_and_elements() -> dict[str, Program]:
    return {
        "sums": (lambda x: (jnp.sum(x), jnp.max(x, 0), jnp.prod(x, 1), jnp.var(x)), (X,)),
        "reduce_pair": (
            lambda x: lax.reduce(
                (x, x * 2), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)
            ),
            (X,),
        ),
        "argmax": (lambda x: jnp.argmax(x, axis=1), (X,)),
        "window": (lambda x: window(x, 0.0, lax.add, (2, 3), (1, 1), "VALID"), (X,)),
        "pool": (pooled, (ones(2, 15, 15, 3),)),
        "pool_gradient": (jax.grad(lambda x: jnp.sum(pooled(x))), (ones(2, 15, 15, 3),)),
        "cumulative": (lambda x: (jnp.cumsum(x, axis=1), lax.cummax(x, axis=0)), (X,)),
        "associative_scan": (lambda x: lax.associative_scan(lax.add, x), (X,)),
        "softmax": (jax.nn.softmax, (X,)),
        "wave": (lambda x: jnp.sin(x) + jnp.cos(x) * jnp.exp(x), (X,)),
        "special": (
            lambda x: (
                lax.erf(x),
                lax.lgamma(x),
                jnp.arctan2(x, x),
                jnp.cbrt(x),
                jnp.power(x, 2.5),
            ),
            (X,),
        ),
        "choices": (lambda x: (jnp.clip(x, 0, 1), jnp.where(x > 0, x, -x)), (X,)),
        "complex": (lambda x: (jnp.abs(lax.complex(x, x)), lax.complex(x, x) * 2j), (X,)),
        "types": (
            lambda x: tuple(
                x.astype(t).sum() for t in (jnp.int8, jnp.int16, jnp.float16, jnp.bfloat16)
            ),
            (X,),
        ),
        "random": (lambda k: jax.random.normal(k, (64,)), (jax.random.key(0),)),
        "random_bits": (
            lambda k: lax.rng_bit_generator(k, (16,)),
            (jnp.zeros(4, jnp.uint32),),
        ),
        "accuracy": (lambda x: lax.exp(x, accuracy=lax.AccuracyMode.HIGHEST), (X,)),
    }


def partitioned() -> dict[str, Program]:
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)

    def on(*axes: Any) -> NamedSharding:
        return NamedSharding(mesh, P(*axes))

    def mapped(function: Any, result: Any) -> Any:
        return shard_map(
            function, mesh=mesh, in_specs=P("a", "b"), out_specs=result, check_vma=False
        )

    def train(weights: Any, x: Any) -> Any:
        return weights - jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(weights)

    x = jax.device_put(X, on("a", "b"))
    weights = jax.device_put(ones(64, 64), on("b", None))
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    return {
        "sharded_product": (lambda x, w: x @ w, (x, weights)),
        "sharded_constraint": (
            lambda x: lax.with_sharding_constraint(jnp.sin(x), on(("a", "b"), None)) * 2,
            (x,),
        ),
        "sharded_training": (train, (jax.device_put(ones(64, 64), on(None, "b")), x)),
        "psum": (mapped(lambda x: lax.psum(x, "a"), P(None, "b")), (x,)),
        "psum_of_both": (mapped(lambda x: lax.psum(x, ("a", "b")), P()), (x,)),
        "psum_twice": (
            mapped(
                lambda x: lax.psum(x * lax.psum(x.sum(), "a"), "b") + lax.pmean(x, ("a", "b")),
                P("a"),
            ),
            (x,),
        ),
        "all_gather": (
            mapped(lambda x: lax.all_gather(x, "b", axis=1, tiled=True), P("a")),
            (x,),
        ),
        "reduce_scatter": (
            mapped(
                lambda x: lax.psum_scatter(x, "b", scatter_dimension=1, tiled=True), P("a", "b")
            ),
            (x,),
        ),
        "all_to_all": (
            mapped(lambda x: lax.all_to_all(x, "b", 0, 1, tiled=True), P("a", "b")),
            (x,),
        ),
        "permute": (mapped(lambda x: lax.ppermute(x, "b", ring), P("a", "b")), (x,)),
    }


def main(folder: Path) -> None:
    """Write all of them."""
    groups = (control_flow, linear_algebra, convolutions, data_movement)
    more = (reductions_and_elements, partitioned)
    programs = {name: one for group in (*groups, *more) for name, one in group().items()}
    for name, (function, arguments) in programs.items():
        lowered = jax.jit(function).lower(*arguments)
        module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        write(folder, f"{name}.lowered", module, lowered.cost_analysis())
        compiled = lowered.compile()
        module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
        write(folder, f"{name}.compiled", module, compiled.cost_analysis())


def write(folder: Path, name: str, module: bytes, cost: Any) -> None:
    (folder / f"{name}.pb").write_bytes(module)
    (folder / f"{name}.json").write_text(json.dumps(dict(cost or {})))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
