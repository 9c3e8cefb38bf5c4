import { describe, expect, test } from "vitest";

import * as n from "../src/format/numbers";

const t = n.text;

describe("numbers", () => {
  test("groups thousands with commas and signs with a true minus", () => {
    expect(n.count(1210)).toBe("1,210");
    expect(n.count(1234567)).toBe("1,234,567");
    expect(n.fixed(-47.8, 1)).toBe("\u221247.8");
    expect(n.fixed(-0.01, 1)).toBe("0.0");
  });

  test("gives a column the decimals that show four digits of its largest value", () => {
    expect(n.columnDecimals([413.6, 8.2])).toBe(1);
    expect(n.columnDecimals([16.644, 3])).toBe(2);
    expect(n.columnDecimals([1183, 2])).toBe(0);
    expect(n.columnDecimals([null, undefined, 0])).toBe(0);
    expect(n.columnDecimals([0.5])).toBe(4);
    expect(n.columnDecimals([9.99996])).toBe(2);
  });

  test("signs every difference except zero", () => {
    expect(n.signed(8.31, 1)).toBe("+8.3");
    expect(n.signed(-8.31, 1)).toBe("\u22128.3");
    expect(n.signed(0.01, 1)).toBe("0.0");
    expect(n.change(0.0831)).toBe("+8.3%");
    expect(n.ticksWithin(0.77, 235)).toEqual([50, 100, 150, 200]);
    expect(n.ticksWithin(0, 88)).toEqual([0, 20, 40, 60, 80]);
    expect(n.ticksWithin(3, 3)).toEqual([3]);
    expect([n.change(9.5), n.change(452.4)]).toEqual(["+950.0%", "×453"]);
    expect(n.points(-0.038)).toBe("\u22123.8 points");
  });

  test("writes percentages with one decimal, small ones as less than 0.1%", () => {
    expect(n.percent(0.219)).toBe("21.9%");
    expect(n.percent(0)).toBe("0%");
    expect(n.percent(0.0004)).toBe("<0.1%");
    expect(n.percent(1)).toBe("100.0%");
  });

  test("switches the unit of a duration at 1,000 and goes to minutes above a minute", () => {
    expect(t(n.duration(0.7301))).toBe("730.1 µs");
    expect(t(n.duration(0.000_25))).toBe("250.0 ns");
    expect(t(n.duration(413.62))).toBe("413.6 ms");
    expect(t(n.duration(999.99))).toBe("1.000 s");
    expect(t(n.duration(8_300))).toBe("8.300 s");
    expect(t(n.duration(125_000))).toBe("2 min 05 s");
    expect(t(n.duration(0))).toBe("0 ms");
    expect(n.durationUnit(0.4).unit).toBe("µs");
  });

  test("uses binary units for memory and decimal units for files and bandwidth", () => {
    expect(t(n.memory(71.2 * 1024 ** 3))).toBe("71.2 GiB");
    expect(t(n.memory(1000 * 1024))).toBe("1,000 KiB");
    expect(t(n.fileSize(1.42e9))).toBe("1.42 GB");
    expect(t(n.fileSize(96e6))).toBe("96.0 MB");
    expect(t(n.fileSize(512))).toBe("512 B");
    expect(t(n.fileSize(0))).toBe("0 B");
    expect(t(n.bandwidth(2.88e12))).toBe("2.88 TB/s");
  });

  test("writes compute in FLOP per second with a metric prefix", () => {
    expect(t(n.flops(458e12))).toBe("458 TFLOP/s");
    expect(t(n.flops(1.97e14))).toBe("197 TFLOP/s");
    expect(t(n.flops(0))).toBe("0 FLOP/s");
  });

  test("cuts ids in the middle and counts with the right word", () => {
    expect(n.middleCut("121987653885")).toBe("1219…3885");
    expect(n.middleCut("12198765")).toBe("12198765");
    expect(n.plural(1, "host")).toBe("1 host");
    expect(n.plural(1024, "host")).toBe("1,024 hosts");
    expect(n.ofTotal(1021, 1024)).toBe("1,021 of 1,024");
    expect(n.traceTime(3213.412)).toBe("3,213.412 ms");
  });

  test("puts axis ticks at round numbers that cover the largest value", () => {
    expect(n.ticks(445.3)).toEqual([0, 100, 200, 300, 400, 500]);
    expect(n.ticks(1).at(-1)).toBeGreaterThanOrEqual(1);
    expect(n.ticks(0)).toEqual([0, 1]);
    for (const largest of [0.003, 7, 99.9, 1234, 5e6]) {
      const marks = n.ticks(largest);
      expect(marks.at(-1)).toBeGreaterThanOrEqual(largest);
      expect(marks.length).toBeLessThan(9);
    }
  });

  test("names are shown without the beginning that they share", () => {
    expect([...n.shortNames(["w-00", "w-11"]).values()]).toEqual(["00", "11"]);
    expect([...n.shortNames(["a-10", "a-11"]).values()]).toEqual(["10", "11"]);
    expect([...n.shortNames(["pod.a", "job"]).values()]).toEqual(["pod.a", "job"]);
    expect([...n.shortNames(["alone-1"]).values()]).toEqual(["alone-1"]);
    expect([...n.shortNames(["w-", "w-1"]).values()]).toEqual(["w-", "w-1"]);
  });

  test("axis ticks have as many decimals as tell them apart", () => {
    expect([100, 5, 2.5, 0.25, 0.1].map(n.tickDecimals)).toEqual([0, 0, 1, 2, 1]);
  });
});
