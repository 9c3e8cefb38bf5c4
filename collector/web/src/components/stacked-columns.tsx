/** Columns of stacked parts in the fixed order of categories; the same chart for steps, hosts and cores. */
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";

import { columnDecimals, fixed, percent, tickDecimals, ticks } from "../format/numbers";
import type { Category } from "../tools/categories";
import { useWidth } from "./use-width";

export interface StackedColumn {
  readonly key: string;
  readonly label: string;
  /** Said on hover, where the label is short. */
  readonly title?: string;
  /** A second line under the label. */
  readonly sub?: string;
  readonly total: number;
  readonly parts: ReadonlyMap<string, number>;
}

export interface ReferenceLine {
  readonly value: number;
  readonly label: string;
}

const LEFT = 46;
const RIGHT = 8;
const TOP = 22;
const GAP = 0.8;
const MIN_PITCH = 3;

/** When there are more columns than fit, each one drawn is the tallest of a few neighbours. */
export function thin(columns: readonly StackedColumn[], most: number): { columns: readonly StackedColumn[]; per: number } {
  const per = Math.ceil(columns.length / Math.max(most, 1));
  if (per <= 1) return { columns, per: 1 };
  const drawn: StackedColumn[] = [];
  for (let from = 0; from < columns.length; from += per) {
    drawn.push(columns.slice(from, from + per).reduce((a, b) => (b.total > a.total ? b : a)));
  }
  return { columns: drawn, per };
}

/** One path a category: thousands of parts stay a handful of elements. */
function stackPath(columns: readonly StackedColumn[], order: readonly Category[], index: number, x: (i: number) => number, width: number, y: (v: number) => number): string {
  const id = (order[index] as Category).id;
  let path = "";
  columns.forEach((column, i) => {
    const value = column.parts.get(id) ?? 0;
    if (!(value > 0)) return;
    let below = 0;
    for (let k = 0; k < index; k++) below += column.parts.get((order[k] as Category).id) ?? 0;
    const bottom = y(below);
    const height = bottom - y(below + value);
    const drawn = Math.max(height - GAP, Math.min(height, 0.5));
    path += `M${x(i).toFixed(2)} ${bottom.toFixed(2)}h${width.toFixed(2)}v${(-drawn).toFixed(2)}h${(-width).toFixed(2)}z`;
  });
  return path;
}

export function StackedColumns(props: {
  columns: readonly StackedColumn[];
  categories: readonly Category[];
  unit: string;
  sentence: string;
  caption?: string;
  height?: number;
  selected?: string | null;
  onSelect?: (key: string) => void;
  marked?: { readonly key: string; readonly label: string } | null;
  line?: ReferenceLine | null;
  dimmed?: string | null;
}) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [hover, setHover] = useState<number | null>(null);
  const height = props.height ?? 300;
  const hasSub = props.columns.some((column) => column.sub);
  const bottom = height - (hasSub ? 36 : 22) - (props.caption ? 16 : 0);
  const plot = Math.max(width - LEFT - RIGHT, 1);
  const { columns, per } = thin(props.columns, Math.floor(plot / MIN_PITCH));
  const largest = Math.max(...columns.map((column) => column.total), props.line?.value ?? 0, 0);
  const marks = ticks(largest);
  const top = marks.at(-1) ?? 1;
  const y = (value: number): number => bottom - (value / top) * (bottom - TOP);
  const pitch = plot / Math.max(columns.length, 1);
  const columnWidth = Math.min(Math.max(pitch * 0.8, 1.5), 64);
  const x = (i: number): number => LEFT + i * pitch + (pitch - columnWidth) / 2;
  const decimals = columnDecimals(columns.map((column) => column.total));
  const every = Math.max(1, Math.ceil((7 * Math.max(...columns.map((c) => Math.max(c.label.length, c.sub?.length ?? 0)), 1) + 10) / pitch));
  const shown = hover !== null ? columns[hover] : undefined;
  const selectedAt = columns.findIndex((column) => column.key === props.selected);
  const markedAt = columns.findIndex((column) => column.key === props.marked?.key);

  const indexAt = (event: PointerEvent | MouseEvent): number | null => {
    const left = (box.current as HTMLDivElement).getBoundingClientRect().left;
    const i = Math.floor((event.clientX - left - LEFT) / pitch);
    return i >= 0 && i < columns.length ? i : null;
  };
  const outline = (i: number, key: string) => {
    const column = columns[i] as StackedColumn;
    return <rect key={key} class="outline" x={x(i) - 2.5} y={y(column.total) - 2.5} width={columnWidth + 5} height={bottom - y(column.total) + 5} rx="2" />;
  };
  return (
    <div class="chart" ref={box}>
      <svg
        role="img"
        aria-label={props.sentence}
        width={width}
        height={height}
        class={props.dimmed ? "dims" : ""}
        onPointerMove={(event) => setHover(indexAt(event))}
        onPointerLeave={() => setHover(null)}
        onClick={(event) => {
          const i = indexAt(event);
          if (i !== null) props.onSelect?.((columns[i] as StackedColumn).key);
        }}
      >
        <defs>
          <pattern id="idle-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect class="idle-ground" width="5" height="5" />
            <line class="idle-line" x1="0" y1="0" x2="0" y2="5" />
          </pattern>
        </defs>
        {marks.map((mark) => (
          <g key={mark}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(mark)} y2={y(mark)} />
            <text x={LEFT - 6} y={y(mark) + 4} text-anchor="end">{fixed(mark, tickDecimals(marks[1] ?? 1))}</text>
          </g>
        ))}
        {props.categories.map((category, i) => (
          <path
            key={category.id}
            class={`cat-${category.id} ${props.dimmed && props.dimmed !== category.id ? "dim" : ""}`}
            d={stackPath(columns, props.categories, i, x, columnWidth, y)}
            {...(category.id === "idle" ? { fill: "url(#idle-hatch)" } : {})}
          />
        ))}
        {columns.map((column, i) =>
          i % every === 0 || i === selectedAt ? (
            i !== selectedAt && selectedAt >= 0 && Math.abs(i - selectedAt) < every ? null : (
              <text key={column.key} class={i === selectedAt || i === markedAt ? "strong" : ""} x={x(i) + columnWidth / 2} y={bottom + 16} text-anchor="middle">
                {column.label}
                {column.sub && <tspan x={x(i) + columnWidth / 2} dy="14">{column.sub}</tspan>}
              </text>
            )
          ) : null,
        )}
        {props.line && (
          <>
            <line class="reference" x1={LEFT} x2={width - RIGHT} y1={y(props.line.value)} y2={y(props.line.value)} />
            <text x={width - RIGHT} y={12} text-anchor="end">┄ {props.line.label}</text>
          </>
        )}
        {selectedAt >= 0 && outline(selectedAt, "selected")}
        {markedAt >= 0 && markedAt !== selectedAt && outline(markedAt, "marked")}
        {selectedAt >= 0 && markedAt !== selectedAt && <Value column={columns[selectedAt] as StackedColumn} x={x(selectedAt) + columnWidth / 2} y={y((columns[selectedAt] as StackedColumn).total)} text={fixed((columns[selectedAt] as StackedColumn).total, decimals)} width={width} />}
        {markedAt >= 0 && props.marked && <Value column={columns[markedAt] as StackedColumn} x={x(markedAt) + columnWidth / 2} y={y((columns[markedAt] as StackedColumn).total)} text={props.marked.label} width={width} />}
        {props.caption && <text x={LEFT + plot / 2} y={height - 4} text-anchor="middle">{props.caption}{per > 1 ? `, each column the longest of ${per}` : ""}</text>}
      </svg>
      {shown && hover !== null && (
        <Hint left={Math.min(Math.max(x(hover) + columnWidth + 8, 0), Math.max(width - 230, 0))}>
          <b>{shown.title ?? shown.label}</b> {fixed(shown.total, decimals)} {props.unit}
          <table>
            <tbody>
              {[...props.categories].reverse().map((category) => {
                const value = shown.parts.get(category.id) ?? 0;
                if (value <= 0) return null;
                return (
                  <tr key={category.id}>
                    <td><i class={`swatch cat-${category.id}`} />{category.label}</td>
                    <td class="num">{fixed(value, decimals + 1)}</td>
                    <td class="num quiet">{shown.total > 0 ? percent(value / shown.total) : ""}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </Hint>
      )}
    </div>
  );
}

function Value(props: { column: StackedColumn; x: number; y: number; text: string; width: number }) {
  // At the edges the label would be cut: anchor it there.
  const half = props.text.length * 3.2;
  const anchor = props.x - half < LEFT ? "start" : props.x + half > props.width ? "end" : "middle";
  const x = anchor === "start" ? LEFT : anchor === "end" ? props.width - 2 : props.x;
  return <text class="strong" x={x} y={Math.max(props.y - 8, 10)} text-anchor={anchor}>{props.text}</text>;
}

export function Hint({ left, children }: { left: number; children: ComponentChildren }) {
  return <div class="hint" style={{ left: `${left}px` }}>{children}</div>;
}

/** A chart and the numbers behind it: one button changes between them. */
export function WithTable(props: { label: string; table: () => ComponentChildren; children: ComponentChildren }) {
  const [asTable, setAsTable] = useState(false);
  return (
    <div class="with-table">
      {asTable ? <div class="table-scroll short">{props.table()}</div> : props.children}
      <button type="button" class="link-button table-toggle" onClick={() => setAsTable(!asTable)} aria-label={`${asTable ? "Show as chart" : "Show as table"}: ${props.label}`}>
        {asTable ? "Show as chart" : "Show as table"}
      </button>
    </div>
  );
}

/** The columns of a stacked chart as a table. */
export function StackTable(props: { columns: readonly StackedColumn[]; categories: readonly Category[]; first: string; unit: string }) {
  const decimals = columnDecimals(props.columns.map((column) => column.total));
  return (
    <table class="data">
      <thead>
        <tr>
          <th scope="col">{props.first}</th>
          <th scope="col" class="num">Total <small>{props.unit}</small></th>
          {props.categories.map((category) => <th scope="col" class="num" key={category.id}>{category.label}</th>)}
        </tr>
      </thead>
      <tbody>
        {props.columns.map((column) => (
          <tr key={column.key}>
            <th scope="row">{column.title ?? column.label}</th>
            <td class="num">{fixed(column.total, decimals)}</td>
            {props.categories.map((category) => <td class="num" key={category.id}>{fixed(column.parts.get(category.id) ?? 0, decimals)}</td>)}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
