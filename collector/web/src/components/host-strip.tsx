/** One bar a host up to 64, above that 16 groups: whole, missing, slow or failed at a glance. */
export type HostMark = "stored" | "missing" | "slow" | "failed";

const MAX_BARS = 64;
const GROUPS = 16;
const WORST: readonly HostMark[] = ["failed", "slow", "missing", "stored"];

/** Above the limit a bar stands for a group and shows its worst host. */
export function stripBars(marks: readonly HostMark[]): HostMark[] {
  if (marks.length <= MAX_BARS) return [...marks];
  return Array.from({ length: GROUPS }, (_, group) => {
    const from = Math.floor((group * marks.length) / GROUPS);
    const to = Math.floor(((group + 1) * marks.length) / GROUPS);
    const inside = new Set(marks.slice(from, to));
    return WORST.find((mark) => inside.has(mark)) ?? "stored";
  });
}

/** Marks when only the counts are known: the stored first. */
export function marksFromCounts(done: number, total: number, live: boolean): HostMark[] {
  const rest: HostMark = live ? "missing" : "failed";
  return Array.from({ length: total }, (_, i) => (i < done ? "stored" : rest));
}

export function HostStrip({ marks, label }: { marks: readonly HostMark[]; label: string }) {
  const bars = stripBars(marks);
  // Many bars get thinner, so that the strip keeps its place in the row.
  const width = bars.length > 20 ? 2 : 5;
  const pitch = width + 1;
  return (
    <svg class="host-strip" role="img" aria-label={label} width={Math.max(bars.length, 1) * pitch} height="12">
      {bars.map((mark, i) => {
        const height = mark === "missing" ? 4 : 12;
        return <rect key={i} class={`mark-${mark}`} x={i * pitch} y={12 - height} width={width} height={height} />;
      })}
    </svg>
  );
}
