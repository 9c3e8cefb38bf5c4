"""A process that trains a little with JAX and serves its profiler; started by the tests."""

import sys
import time

import jax
import jax.numpy as jnp


def main() -> None:
    """Serve on the port given, run the program named, work until killed."""
    jax.profiler.start_server(int(sys.argv[1]))
    function = getattr(jnp, sys.argv[2])

    def work(x: jax.Array) -> jax.Array:
        return function(x @ x) / 10

    work.__name__ = f"{sys.argv[2]}_step"
    step = jax.jit(work)
    x = jnp.ones((64, 64))
    step(x).block_until_ready()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for number in range(10**9):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            x = step(x)
            x.block_until_ready()
        time.sleep(0.005)


if __name__ == "__main__":
    main()
