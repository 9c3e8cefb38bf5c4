/** A step's parts as one thin bar: the odd capture shows without opening it. */
import { percent } from "../format/numbers";
import { categoryOf, stackOrder } from "../tools/categories";

export function BreakdownBar({ parts, width = 124 }: { parts: readonly { category: string; ratio: number }[]; width?: number }) {
  const sums = new Map<string, { label: string; ratio: number }>();
  for (const part of parts) {
    const { id, label } = categoryOf(part.category);
    sums.set(id, { label, ratio: (sums.get(id)?.ratio ?? 0) + Math.max(part.ratio, 0) });
  }
  const rows = [...sums].filter(([, part]) => part.ratio > 0).sort(([a], [b]) => stackOrder(a) - stackOrder(b));
  const total = Math.max(1, rows.reduce((sum, [, part]) => sum + part.ratio, 0));
  const sentence = rows.map(([, part]) => `${part.label} ${percent(part.ratio)}`).join(", ");
  let x = 0;
  return (
    <svg class="breakdown-bar" role="img" aria-label={sentence} width={width} height="14">
      <title>{sentence}</title>
      {rows.map(([id, part]) => {
        const size = (part.ratio / total) * width;
        const rect = <rect key={id} class={`cat-${id}`} x={x} y="0" width={Math.max(size - 0.8, 0.4)} height="14" />;
        x += size;
        return rect;
      })}
    </svg>
  );
}
