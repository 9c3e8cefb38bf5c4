import { expect, test } from "vitest";
import { kernelUrl } from "../src/api/client";

test("a custom call's kernel is asked of its program, as text", () => {
  const url = new URL(kernelUrl("c 1", "w0", "9223372036854775808", "kernel.1"), "http://service");
  expect(url.pathname).toMatch(/\/captures\/c%201\/tools\/graph_viewer$/);
  expect(Object.fromEntries(url.searchParams)).toEqual({
    host: "w0",
    format: "xprof",
    type: "custom_call",
    program_id: "9223372036854775808",
    node_name: "kernel.1",
  });
});
