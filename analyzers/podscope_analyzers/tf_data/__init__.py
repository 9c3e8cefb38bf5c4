"""Input pipelines of tf.data: which iterator each call waited for.

``events`` finds the calls of iterators on a host's threads and who asked whom; ``pipelines`` is
what is kept of them; ``bottlenecks`` says what the slow ones waited for.
"""
