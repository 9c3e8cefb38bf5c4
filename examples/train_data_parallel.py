"""A small data-parallel training job in JAX: one process of it, as a user would write it.

Every process holds one shard of the batch and a copy of the parameters; the gradients are
averaged over all processes inside the compiled step. Run it once per process:

    python examples/train_data_parallel.py --process 0 --processes 4 --port 9410 &
    ...

Each process serves JAX's own profiler on ``--port`` and marks its steps, which is all that
podscope needs.
"""

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS = 3
WIDTH = 256
BATCH_PER_PROCESS = 32


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--process", type=int, required=True, help="index of this process")
    parser.add_argument("--processes", type=int, required=True, help="how many there are")
    parser.add_argument("--coordinator", default="127.0.0.1:9400", help="address of process 0")
    parser.add_argument("--port", type=int, required=True, help="profiler port of this process")
    parser.add_argument("--slow-input-ms", type=float, default=0, help="extra input time a step")
    parser.add_argument("--seconds", type=float, default=3600, help="how long to train")
    return parser.parse_args()


def loss(parameters: list[jax.Array], inputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean squared error of a plain multi-layer perceptron."""
    activations = inputs
    for layer, weights in enumerate(parameters):
        with jax.named_scope(f"layer_{layer}"):
            activations = jnp.tanh(activations @ weights)
    return jnp.mean((activations - targets) ** 2)


@jax.jit
def train_step(
    parameters: list[jax.Array], inputs: jax.Array, targets: jax.Array
) -> tuple[list[jax.Array], jax.Array]:
    """One step of gradient descent; the gradients' mean over hosts is an all-reduce."""
    value, gradients = jax.value_and_grad(loss)(parameters, inputs, targets)
    with jax.named_scope("sgd"):
        updated = [w - 0.01 * g for w, g in zip(parameters, gradients, strict=True)]
    return updated, value


def load_batch(random: np.random.Generator, slow_ms: float) -> tuple[Any, Any]:
    """Make a batch; a slow input pipeline is played by waiting as long as it would take."""
    time.sleep((2 + slow_ms) / 1000)
    shape = (BATCH_PER_PROCESS, WIDTH)
    return random.standard_normal(shape, np.float32), random.standard_normal(shape, np.float32)


def main() -> None:
    """Train until the time is over."""
    args = arguments()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(args.coordinator, args.processes, args.process)
    jax.profiler.start_server(args.port)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    sharded = NamedSharding(mesh, PartitionSpec("data"))
    replicated = NamedSharding(mesh, PartitionSpec())
    random = np.random.default_rng(args.process)
    initial = np.random.default_rng(0)
    parameters = [
        jax.make_array_from_process_local_data(
            replicated, initial.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5
        )
        for _ in range(LAYERS)
    ]

    # The processes train in lock step, so all of them stop at the same step: a fixed count.
    steps = max(1, int(args.seconds / 0.05))
    for step in range(steps):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            with jax.profiler.TraceAnnotation("load_batch"):
                batch = load_batch(random, args.slow_input_ms)
            inputs, targets = (
                jax.make_array_from_process_local_data(sharded, part) for part in batch
            )
            parameters, value = train_step(parameters, inputs, targets)
            with jax.profiler.TraceAnnotation("wait_for_step"):
                value.block_until_ready()
        if step == 0:
            print(f"process {args.process}: training", flush=True)


if __name__ == "__main__":
    main()
