/** Cells on a scale from quiet to hot: hosts by steps, or hosts alone when they are many. */
import { useRef, useState } from "preact/hooks";

import { middleCut } from "../format/numbers";
import { useWidth } from "./use-width";

export interface Cell {
  readonly row: string;
  readonly column: string;
  /** 0 is the quiet end. */
  readonly value: number;
  readonly text: string;
}

const HEAT_STEPS = 8;

/** Which of the eight colours; `hottest` gets the last. */
export function heatStep(value: number, hottest: number): number {
  if (!(value > 0) || !(hottest > 0)) return 0;
  return Math.min(HEAT_STEPS - 1, Math.floor((value / hottest) * HEAT_STEPS));
}

export function HeatScale({ low, high }: { low: string; high: string }) {
  return (
    <span class="heat-scale">
      {low}
      <svg width="96" height="10" aria-hidden="true">
        {Array.from({ length: HEAT_STEPS }, (_, i) => <rect key={i} class={`heat-${i}`} x={i * 12} y="0" width="12" height="10" />)}
      </svg>
      {high}
    </span>
  );
}

const MAX_LABEL = 120;
const ROW = 19;
const HEAD = 20;

/** Rows by columns; arrow keys walk the cells and the value is read out. */
export function HeatMatrix(props: {
  rows: readonly string[];
  /** What to write beside a row. */
  names: ReadonlyMap<string, string>;
  columns: readonly string[];
  /** What a column is, for what is read out. */
  columnWord: string;
  cell: (row: string, column: string) => Cell | null;
  hottest: number;
  sentence: string;
  selectedColumn: string | null;
  strongRows: ReadonlySet<string>;
  selectedRow: string | null;
  onSelect: (row: string, column: string) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [cursor, setCursor] = useState<readonly [number, number] | null>(null);
  const label = Math.min(MAX_LABEL, 16 + 7 * Math.max(...props.rows.map((row) => (props.names.get(row) ?? row).length), 3));
  const plot = Math.max(width - label - 4, 1);
  const pitch = Math.max(plot / Math.max(props.columns.length, 1), 2);
  const gap = pitch > 6 ? 1 : 0;
  const every = Math.max(1, Math.ceil(44 / pitch));
  const height = HEAD + props.rows.length * ROW + 4;
  const selectedAt = props.selectedColumn === null ? -1 : props.columns.indexOf(props.selectedColumn);
  const at = cursor ? props.cell(props.rows[cursor[0]] ?? "", props.columns[cursor[1]] ?? "") : null;

  const onKeyDown = (event: KeyboardEvent): void => {
    const moves: Readonly<Record<string, readonly [number, number]>> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    const [row, column] = cursor ?? [0, Math.max(selectedAt, 0)];
    if (move) {
      setCursor([Math.min(Math.max(row + move[0], 0), props.rows.length - 1), Math.min(Math.max(column + move[1], 0), props.columns.length - 1)]);
    } else if (event.key === "Enter" && cursor) {
      props.onSelect(props.rows[row] as string, props.columns[column] as string);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const place = (event: PointerEvent | MouseEvent): readonly [number, number] | null => {
    const rect = (event.currentTarget as Element).getBoundingClientRect();
    const row = Math.floor((event.clientY - rect.top - HEAD) / ROW);
    const column = Math.floor((event.clientX - rect.left - label) / pitch);
    return props.rows[row] !== undefined && props.columns[column] !== undefined ? [row, column] : null;
  };
  return (
    <div class="heat" ref={box} tabIndex={0} onKeyDown={onKeyDown} role="application" aria-label={`${props.sentence} Arrow keys walk the cells.`}>
      <svg
        role="img"
        aria-label={props.sentence}
        width={width}
        height={height}
        onPointerMove={(event) => setCursor(place(event))}
        onPointerLeave={() => setCursor(null)}
        onClick={(event) => {
          const hit = place(event);
          if (hit) props.onSelect(props.rows[hit[0]] as string, props.columns[hit[1]] as string);
        }}
      >
        {props.columns.map((column, i) =>
          i % every === 0 || i === selectedAt ? (
            i !== selectedAt && selectedAt >= 0 && Math.abs(i - selectedAt) < every ? null : (
              <text key={column} class={i === selectedAt ? "strong" : ""} x={Math.min(label + (i + 0.5) * pitch, width - 3.5 * column.length)} y="13" text-anchor="middle">{column}</text>
            )
          ) : null,
        )}
        {props.rows.map((row, r) => (
          <g key={row}>
            <text class={props.strongRows.has(row) || row === props.selectedRow ? "strong" : ""} x={label - 8} y={HEAD + r * ROW + 13} text-anchor="end">
              {middleCut(props.names.get(row) ?? row, 8)}
            </text>
            {props.columns.map((column, c) => {
              const cell = props.cell(row, column);
              const x = label + c * pitch;
              if (!cell) return <rect key={column} class="heat-missing" x={x} y={HEAD + r * ROW} width={Math.max(pitch - gap, 1)} height={ROW - 1} />;
              const heat = heatStep(cell.value, props.hottest);
              return (
                <g key={column}>
                  <rect class={`heat-${heat}`} x={x} y={HEAD + r * ROW} width={Math.max(pitch - gap, 1)} height={ROW - 1} rx={gap} />
                  {props.strongRows.has(row) && pitch > 40 && heat > 3 && (
                    <text class={heat > 4 ? "on-hot" : "on-warm"} x={x + (pitch - gap) / 2} y={HEAD + r * ROW + 13} text-anchor="middle">{cell.text}</text>
                  )}
                </g>
              );
            })}
          </g>
        ))}
        {selectedAt >= 0 && <rect class="outline" x={label + selectedAt * pitch - 1} y={HEAD - 2} width={pitch + 1} height={props.rows.length * ROW + 3} rx="2" />}
        {cursor && <rect class="outline" x={label + cursor[1] * pitch - 0.5} y={HEAD + cursor[0] * ROW - 0.5} width={pitch} height={ROW} />}
      </svg>
      <p class="heat-readout" aria-live="polite">{at ? `${at.row}, ${props.columnWord} ${at.column}: ${at.text}` : ""}</p>
    </div>
  );
}

const CELL = 19;

/** One cell a host, in the order given: the form for hundreds and thousands. */
export function HeatCells(props: {
  cells: readonly Cell[];
  hottest: number;
  sentence: string;
  outlined: ReadonlySet<string>;
  selected: string | null;
  onSelect: (row: string) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [cursor, setCursor] = useState<number | null>(null);
  const size = props.cells.length > 2000 ? 11 : CELL;
  const per = Math.max(1, Math.floor(width / (size + 1)));
  const rows = Math.ceil(props.cells.length / per);
  const at = cursor === null ? null : props.cells[cursor];
  const onKeyDown = (event: KeyboardEvent): void => {
    const moves: Readonly<Record<string, number>> = { ArrowUp: -per, ArrowDown: per, ArrowLeft: -1, ArrowRight: 1 };
    const move = moves[event.key];
    if (move !== undefined) setCursor(Math.min(Math.max((cursor ?? 0) + move, 0), props.cells.length - 1));
    else if (event.key === "Enter" && at) props.onSelect(at.row);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const place = (event: PointerEvent | MouseEvent): number | null => {
    const rect = (event.currentTarget as Element).getBoundingClientRect();
    const column = Math.floor((event.clientX - rect.left) / (size + 1));
    const i = Math.floor((event.clientY - rect.top) / (size + 1)) * per + column;
    return column < per && props.cells[i] ? i : null;
  };
  return (
    <div class="heat" ref={box} tabIndex={0} onKeyDown={onKeyDown} role="application" aria-label={`${props.sentence} Arrow keys walk the cells.`}>
      <svg
        role="img"
        aria-label={props.sentence}
        width={width}
        height={rows * (size + 1) + 2}
        onPointerMove={(event) => setCursor(place(event))}
        onPointerLeave={() => setCursor(null)}
        onClick={(event) => {
          const i = place(event);
          if (i !== null) props.onSelect((props.cells[i] as Cell).row);
        }}
      >
        {props.cells.map((cell, i) => (
          <rect
            key={cell.row}
            class={`heat-${heatStep(cell.value, props.hottest)} ${props.outlined.has(cell.row) || props.selected === cell.row ? "ringed" : ""}`}
            x={(i % per) * (size + 1) + 0.5}
            y={Math.floor(i / per) * (size + 1) + 0.5}
            width={size}
            height={size}
            rx="2"
          />
        ))}
      </svg>
      <p class="heat-readout" aria-live="polite">{at ? `${at.row}: ${at.text}` : "Point at a cell, or walk with the arrow keys"}</p>
    </div>
  );
}
