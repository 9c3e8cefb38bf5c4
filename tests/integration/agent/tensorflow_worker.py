"""A process that trains a little with TensorFlow and serves its profiler; started by the tests."""

import sys
import time

import tensorflow as tf


def main() -> None:
    """Serve on the port given, work until killed."""
    tf.profiler.experimental.server.start(int(sys.argv[1]))
    step = tf.function(lambda x: tf.tanh(x @ x) / 10)
    x = tf.ones((64, 64))
    step(x)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for number in range(10**9):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            x = step(x)
        time.sleep(0.005)


if __name__ == "__main__":
    main()
