import { expect, test } from "vitest";

import { ago, dayHeading, fullTime, interval, parseTime } from "../src/format/time";

const now = new Date("2026-11-21T15:00:00Z");
const at = (text: string): Date => new Date(text);

test("times under a day are relative, older ones are full and in UTC", () => {
  expect(ago(at("2026-11-21T14:59:58Z"), now)).toBe("now");
  expect(ago(at("2026-11-21T14:59:20Z"), now)).toBe("40 s ago");
  expect(ago(at("2026-11-21T14:48:00Z"), now)).toBe("12 min ago");
  expect(ago(at("2026-11-21T12:10:00Z"), now)).toBe("2 h ago");
  expect(ago(at("2026-11-20T14:32:07Z"), now)).toBe("20 Nov 14:32:07 UTC");
  expect(ago(at("2026-11-21T15:05:00Z"), now)).toBe("in 5 min");
  expect(fullTime(at("2025-01-02T03:04:05Z"), now)).toBe("2 Jan 2025 03:04:05 UTC");
});

test("days are named from the present", () => {
  expect(dayHeading(now, now)).toBe("Today, 21 November");
  expect(dayHeading(at("2026-11-20T23:59:59Z"), now)).toBe("Yesterday, 20 November");
  expect(dayHeading(at("2025-02-03T00:00:00Z"), now)).toBe("3 February 2025");
});

test("intervals use the largest whole unit", () => {
  expect(interval(300)).toBe("every 5 min");
  expect(interval(7200)).toBe("every 2 h");
  expect(interval(45)).toBe("every 45 s");
});

test("an unreadable time is no time", () => {
  expect(parseTime("soon")).toBeNull();
  expect(parseTime(null)).toBeNull();
  expect(parseTime("2026-11-21T15:00:00Z")?.getTime()).toBe(now.getTime());
});
