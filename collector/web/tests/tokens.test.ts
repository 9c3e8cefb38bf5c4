/** Reads the token file as text and computes the contrasts of WCAG 2.2 for both themes. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

const css = readFileSync(new URL("../src/styles/tokens.css", import.meta.url), "utf8");
const tokens = new Map<string, readonly [string, string]>();
for (const [, name, light, dark] of css.matchAll(/--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);/g)) {
  tokens.set(name as string, [light as string, dark as string]);
}

function luminance(hex: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5]
    .map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string, theme: 0 | 1): number {
  const [x, y] = [tokens.get(a), tokens.get(b)];
  if (!x || !y) throw new Error(`no token ${x ? b : a}`);
  const [high, low] = [luminance(x[theme]), luminance(y[theme])].sort((p, q) => q - p) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

const SURFACES = ["canvas", "surface", "sunken", "raised", "selected", "hover"];
const TEXT = [
  ...["ink", "ink-2", "ink-3", "accent", "ok", "warn", "err", "info"].flatMap((ink) => SURFACES.map((s) => [ink, s])),
  ...["ok", "warn", "err", "info", "accent"].map((state) => [state, `${state}-bg`]),
  ...["ok-bg", "warn-bg", "err-bg", "info-bg", "accent-bg"].map((surface) => ["ink", surface]),
  ["primary-ink", "primary"],
] as [string, string][];
const MARKS = [
  ...["compute", "d2d", "collective", "host", "launch", "input", "output", "compile", "other"].map((c) => [
    `cat-${c}`,
    "surface",
  ]),
  ...["canvas", "surface", "raised"].map((s) => ["control", s]),
  ...["canvas", "surface"].map((s) => ["outlier", s]),
  ["accent", "surface"],
] as [string, string][];

describe.each([
  ["light", 0],
  ["dark", 1],
] as const)("the %s theme", (_, theme) => {
  test.each(TEXT)("text %s is readable on %s", (ink, surface) => {
    expect(contrast(ink, surface, theme)).toBeGreaterThanOrEqual(4.5);
  });
  test.each(MARKS)("mark %s stands out from %s", (mark, surface) => {
    expect(contrast(mark, surface, theme)).toBeGreaterThanOrEqual(3);
  });
});

test("the contrast formula gives 21 for black on white", () => {
  tokens.set("black", ["#000000", "#000000"]);
  tokens.set("white", ["#ffffff", "#ffffff"]);
  expect(contrast("black", "white", 0)).toBeCloseTo(21, 5);
});

test("no colour is written outside the token file", () => {
  for (const file of ["base", "frame", "components", "pages"]) {
    const text = readFileSync(new URL(`../src/styles/${file}.css`, import.meta.url), "utf8");
    expect(text.match(/#[0-9a-f]{3,8}\b|rgba?\(|hsl\(/gi) ?? [], file).toEqual([]);
  }
});

test("no style sheet loads a font or anything from elsewhere", () => {
  for (const file of ["tokens", "base", "frame", "components", "pages"]) {
    const text = readFileSync(new URL(`../src/styles/${file}.css`, import.meta.url), "utf8");
    expect(text).not.toMatch(/@font-face|@import|url\(/);
  }
});
