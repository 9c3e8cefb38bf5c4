/** The first page of a new installation: how to make a program ready, in three ways. */
import { Snippet } from "../../components/basics";

const JAX = `import jax

jax.profiler.start_server(9999)
for step in range(steps):
    with jax.profiler.StepTraceAnnotation("train", step_num=step):
        state = train_step(state, next(batches))`;
const TENSORFLOW = `import tensorflow as tf

tf.profiler.experimental.server.start(9999)
for step in range(steps):
    with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
        train_step(next(batches))`;
const PYTORCH = `import torch_xla.debug.profiler as xp

server = xp.start_server(9999)
for step in range(steps):
    with xp.StepTrace("train", step_num=step):
        train_step(next(batches))`;

export function EmptyCaptures({ onNew }: { onNew: () => void }) {
  return (
    <div class="empty-page">
      <h2>No captures yet</h2>
      <p>
        Start a profiler server in each process of the job, mark its steps, then capture all hosts at once:{" "}
        <button type="button" class="link-button" onClick={onNew}>new capture</button>, or from a shell
        with <code>podscope capture w-0:9999,w-1:9999 --duration 2s</code>.
      </p>
      <div class="snippets">
        <Snippet title="JAX" text={JAX} />
        <Snippet title="TensorFlow" text={TENSORFLOW} />
        <Snippet title="PyTorch/XLA" text={PYTORCH} />
      </div>
      <Snippet
        title="No job at hand: four simulated TPU hosts, the second one slow"
        text={"podscope simulate --hosts 4 --device tpu-v5e --steps 10 --port-base 9100 --slow-host 1"}
      />
    </div>
  );
}
