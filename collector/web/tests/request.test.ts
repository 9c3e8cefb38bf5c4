import { describe, expect, test } from "vitest";

import { type Capture, countedHosts, type Host } from "../src/api/types";
import { attemptsText, listedHosts, quorumHosts } from "../src/pages/dialog/progress";
import { checkForm, EMPTY_FORM, estimateSize, guessTargets, shellCommand, toRequest } from "../src/pages/dialog/request";
import { phaseSpans } from "../src/pages/dialog/timeline";

const addresses = (text: string): string[] => guessTargets(text).map((target) => target.address);
const filled = { ...EMPTY_FORM, targets: "w-0:9999" };

describe("targets", () => {
  test("that are looked up are left to the service", () => {
    const found = guessTargets("k8s:train/app=llm:9999, tpu:v5e jobset:j dns:///h.svc:1");
    expect(found.map((target) => [target.problem, target.isLookup])).toEqual(found.map(() => [null, true]));
    expect(guessTargets("tpu:8466")).toEqual([{ address: "tpu:8466", problem: null, isLookup: false }]);
  });

  test("of agents have the agent's port", () => {
    expect(addresses("agent://h[0-1] agent://h2:7 agent://[::1]")).toEqual(["h0:8466", "h1:8466", "h2:7", "[::1]:8466"]);
  });

  test("are split at commas and blanks and named once", () => {
    expect(addresses("w-0:1, grpc://w-1:2/\nw-0:1")).toEqual(["w-0:1", "w-1:2"]);
  });
  test("open ranges and lists in every combination, keeping leading zeros", () => {
    expect(addresses("w-[08-10].svc:9999")).toEqual(["w-08.svc:9999", "w-09.svc:9999", "w-10.svc:9999"]);
    expect(addresses("w[0,2-3]:[91-92]")).toEqual(["w0:91", "w0:92", "w2:91", "w2:92", "w3:91", "w3:92"]);
  });
  test("of very large ranges are all taken", () => {
    expect(addresses("w-[0-9999]:9999")).toHaveLength(10_000);
    expect(guessTargets("w-[0-9999]:9999")[9999]).toEqual({ address: "w-9999:9999", problem: null, isLookup: false });
  });
  test("without a port are TPUs where the form says so, and their workers have the profiler's port", () => {
    expect(guessTargets("v5e-pod", "tpus")).toEqual([{ address: "v5e-pod", problem: null, isLookup: true }]);
    const workers = guessTargets("grpc://10.0.0.1 grpc://10.0.0.2:8470 grpc://10.0.0.3:9000 w:1", "tpus");
    expect(workers.map((target) => target.address)).toEqual(["10.0.0.1:8466", "10.0.0.2:8466", "10.0.0.3:9000", "w:1"]);
  });
  test("in brackets may be IPv6 addresses", () => {
    expect(guessTargets("[::1]:9999")).toEqual([{ address: "[::1]:9999", problem: null, isLookup: false }]);
  });
  test.each(["w-0", "w-0:0", "w-0:70000", "w-[3-1]:9", ":9999"])("%s is not taken", (text) => {
    expect(guessTargets(text)[0]?.problem).not.toBeNull();
  });
});

describe("the form", () => {
  test("is right as it comes, but for the targets", () => {
    expect(Object.keys(checkForm(EMPTY_FORM))).toEqual(["targets"]);
    expect(checkForm(filled)).toEqual({});
  });
  test.each([
    ["durationMs", "0"],
    ["durationMs", "36000000"],
    ["durationMs", "1.5"],
    ["attempts", "0"],
    ["labels", "after upgrade"],
  ] as const)("refuses %s = %s", (field, value) => {
    expect(checkForm({ ...filled, [field]: value })).toHaveProperty(field);
  });
  test("refuses a quorum that is neither a number nor a share", () => {
    expect(checkForm({ ...filled, quorumKind: "count", quorumCount: "most" })).toHaveProperty("quorumCount");
    expect(checkForm({ ...filled, quorumKind: "count", quorumCount: "50%" })).toEqual({});
  });
  test("becomes the request of the API and the same shell command", () => {
    const form = { ...filled, run: "llm-7b", labels: "team=a", quorumKind: "count" as const, quorumCount: "50%" };
    expect(toRequest(form)).toMatchObject({ targets: "w-0:9999", duration_ms: 2000, trigger: "manual", quorum: "50%", labels: { run: "llm-7b", team: "a" } });
    const command = shellCommand({ ...form, targets: "w-[0-1]:9999" }, "http://h").replaceAll(" \\\n ", "");
    expect(command).toBe("podscope capture 'w-[0-1]:9999' --duration 2s --attempts 3 --quorum 50% --label team=a --label run=llm-7b --url http://h");
  });
});

describe("a number of steps", () => {
  const form = { ...filled, lengthKind: "steps" as const, steps: "20", durationMs: "nonsense" };
  test("takes the place of the duration", () => {
    expect(checkForm(form)).toEqual({});
    expect(toRequest(form)).toMatchObject({ steps: 20 });
    expect(toRequest(form)).not.toHaveProperty("duration_ms");
    expect(shellCommand(form, "http://h")).toContain("--steps 20 ");
  });
  test.each(["0", "1.5", ""])("is not %s", (steps) => {
    expect(checkForm({ ...form, steps })).toHaveProperty("steps");
  });
});

test("who asks, starting together and the expected size are in the request, and in the command", () => {
  const form = { ...filled, together: "yes" as const, hostMb: "8", requestedBy: " ann ", delayMs: "500" };
  expect(toRequest(form)).toMatchObject({ synchronized: true, expected_host_bytes: 8_000_000, requested_by: "ann" });
  expect(shellCommand(form, "http://h")).toContain("--delay 500ms --synchronized --expected-host-bytes 8000000");
  expect(toRequest(filled)).not.toHaveProperty("synchronized");
  expect(checkForm({ ...form, hostMb: "much" })).toHaveProperty("hostMb");
});

describe("the rest of a request", () => {
  const form = {
    ...filled,
    timeoutMs: "90000",
    emptyHosts: "longer" as const,
    bareNames: "tpus" as const,
    options: 'tpu_trace_mode=TRACE_COMPUTE\n\n tpu_perf_counters = true\ngpu_max_annotation_strings=12\ngpu_pm_sample_counters="7"\ntpu_cpu_perf_counter_configs=a:1,b:2=c',
  };
  test("is in it where it is not as it comes, and in the command", () => {
    expect(toRequest(form)).toMatchObject({
      timeout_ms: 90_000,
      retry_empty: true,
      is_tpu_name: true,
      advanced_configuration: {
        tpu_trace_mode: "TRACE_COMPUTE",
        tpu_perf_counters: true,
        gpu_max_annotation_strings: 12,
        gpu_pm_sample_counters: "7",
        tpu_cpu_perf_counter_configs: "a:1,b:2=c",
      },
    });
    const command = shellCommand(form, "http://h");
    expect(command).toContain("--timeout 90000ms --retry-empty --is-tpu-name --option tpu_trace_mode=TRACE_COMPUTE --option tpu_perf_counters=true");
    for (const field of ["timeout_ms", "retry_empty", "is_tpu_name", "advanced_configuration"]) expect(toRequest(filled)).not.toHaveProperty(field);
  });
  test("is refused where it is none", () => {
    expect(checkForm(form)).toEqual({});
    expect(checkForm({ ...form, options: "tpu_trace_mode" })).toHaveProperty("options");
    expect(checkForm({ ...form, timeoutMs: "0" })).toHaveProperty("timeoutMs");
  });
});

describe("the size of a capture", () => {
  const last = { run: "llm", hosts_done: 4, bytes: 40e6, duration_ms: 2000, steps: null, trigger: "api" } as Capture;
  const form = { ...filled, run: "llm" };
  test("is that of the run's last capture, for a longer window in proportion", () => {
    expect(estimateSize(form, 8, [last])).toEqual({ bytes: 80e6, hostBytes: 10e6, by: "last capture" });
    expect(estimateSize({ ...form, durationMs: "4000" }, 8, [last])?.bytes).toBe(160e6);
    expect(estimateSize({ ...form, lengthKind: "steps" }, 8, [last])?.bytes).toBe(80e6);
  });
  test("is what the form says where it says it, and unknown else", () => {
    expect(estimateSize({ ...form, hostMb: "3" }, 2, [last])).toEqual({ bytes: 6e6, hostBytes: 3e6, by: "request" });
    expect(estimateSize({ ...form, run: "other" }, 2, [last])).toBeNull();
    expect(estimateSize(form, 0, [last])).toBeNull();
  });
});

test("a quorum is a number of hosts", () => {
  expect(quorumHosts("any", 4)).toBe(1);
  expect(quorumHosts("all", 4)).toBe(4);
  expect(quorumHosts("50%", 5)).toBe(3);
  expect(quorumHosts("3", 5)).toBe(3);
});

test("hosts that are skipped count in no total", () => {
  const hosts = ["done", "skipped", "failed"].map((state) => ({ state }) as unknown as Host);
  expect(countedHosts(hosts)).toBe(2);
});

test("attempts beyond those allowed are told without a total", () => {
  expect([0, 1, 3, 5].map((begun) => attemptsText(begun, 3))).toEqual(["", "1 of 3", "3 of 3", "5"]);
});

describe("a host's way through a capture", () => {
  const capture = { started_at: "2026-11-21T00:00:00Z", created_at: "2026-11-21T00:00:00Z", duration_ms: 2000 } as Capture;
  const host = (part: Partial<Host>): Host => ({ target: "w:1", host: "w", state: "done", reason: null, message: null, attempts: 1, bytes: 1, started_at: "2026-11-21T00:00:00.100Z", finished_at: null, timings_ms: {}, analysis: null, ...part });
  const at = (ms: number): Date => new Date(Date.parse("2026-11-21T00:00:00Z") + ms);

  test("is its timings in order, waiting parts joined", () => {
    const spans = phaseSpans(capture, host({ timings_ms: { storing: 5, capturing: 2000, connecting: 10, armed: 20 } }), at(9999));
    expect(spans).toEqual([
      { phase: "wait", fromMs: 100, toMs: 130 },
      { phase: "trace", fromMs: 130, toMs: 2130 },
      { phase: "store", fromMs: 2130, toMs: 2135 },
    ]);
  });
  test("reaches the present while it runs", () => {
    const spans = phaseSpans(capture, host({ state: "capturing", timings_ms: { connecting: 10 } }), at(1000));
    expect(spans.at(-1)).toEqual({ phase: "trace", fromMs: 110, toMs: 1000 });
  });
  test("ends in a mark where it failed, and is empty before it starts", () => {
    expect(phaseSpans(capture, host({ state: "failed", finished_at: "2026-11-21T00:00:01Z" }), at(5000)).at(-1)?.phase).toBe("failed");
    expect(phaseSpans(capture, host({ state: "pending", started_at: null }), at(5000))).toEqual([]);
  });
});

test("of very many hosts those in trouble or still running have a line first", () => {
  const host = (target: string, state: string): Host => ({ target, state }) as unknown as Host;
  const few = [host("a", "done"), host("b", "failed")];
  expect(listedHosts(few).map(({ host: one }) => one.target)).toEqual(["a", "b"]);
  const many = [...Array.from({ length: 1022 }, (_, i) => host(`w-${i}`, "done")), host("slow", "receiving"), host("gone", "failed")];
  const listed = listedHosts(many);
  expect(listed.slice(0, 3).map(({ host: one, at }) => [one.target, at])).toEqual([["gone", 1023], ["slow", 1022], ["w-0", 0]]);
  expect(listed.length).toBeLessThan(many.length);
});
