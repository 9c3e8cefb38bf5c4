/** A table of any length: sorts by its columns, walks by keys, draws only the rows in view above 200. */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";

import type { Cell } from "../api/types";

export interface TableColumn<Row> {
  readonly id: string;
  readonly label: ComponentChildren;
  /** Small and grey behind the label. */
  readonly unit?: string;
  readonly width?: number;
  readonly numeric?: boolean;
  readonly title?: string;
  /** What it sorts by and what CSV carries: raw units, full precision. */
  readonly value: (row: Row) => Cell;
  readonly cell?: (row: Row) => ComponentChildren;
  readonly class?: string;
}

export interface SortKey {
  readonly id: string;
  readonly descending: boolean;
}

/** `-self_time,name` and back. */
export function parseSort(text: string | null): SortKey[] {
  return (text ?? "")
    .split(",")
    .filter((part) => part.replace("-", "") !== "")
    .map((part) => (part.startsWith("-") ? { id: part.slice(1), descending: true } : { id: part, descending: false }));
}

export function formatSort(keys: readonly SortKey[]): string {
  return keys.map((key) => (key.descending ? "-" : "") + key.id).join(",");
}

/** Click sorts, again reverses; with shift the column is added as a further key. */
export function nextSort(keys: readonly SortKey[], id: string, numeric: boolean, add: boolean): SortKey[] {
  const present = keys.find((key) => key.id === id);
  const turned = { id, descending: present ? !present.descending : numeric };
  if (!add) return [turned];
  return present ? keys.map((key) => (key.id === id ? turned : key)) : [...keys, turned];
}

function compare(a: Cell, b: Cell): number {
  // What is absent goes last, whichever way the rest runs.
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
}

export function sortRows<Row>(rows: readonly Row[], columns: readonly TableColumn<Row>[], keys: readonly SortKey[]): Row[] {
  const orders = keys.flatMap((key) => {
    const column = columns.find((candidate) => candidate.id === key.id);
    return column ? [{ value: column.value, sign: key.descending ? -1 : 1 }] : [];
  });
  if (orders.length === 0) return [...rows];
  return [...rows].sort((left, right) => {
    for (const { value, sign } of orders) {
      const [a, b] = [value(left), value(right)];
      if (a === null || b === null) {
        if (a === b) continue;
        return a === null ? 1 : -1;
      }
      const order = compare(a, b);
      if (order !== 0) return order * sign;
    }
    return 0;
  });
}

const VIRTUAL_ABOVE = 200;
const HEAD_LETTER = 6.6;
const HEAD_PADDING = 40;

/** What a column of fixed width needs for its own heading. */
function headWidth({ label, unit }: { label: ComponentChildren; unit?: string }): number {
  return typeof label === "string" ? Math.ceil((label.length + (unit?.length ?? 0)) * HEAD_LETTER) + HEAD_PADDING : 0;
}

export function DataTable<Row>(props: {
  label: string;
  columns: readonly TableColumn<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  /** Left out where the rows have an order of their own. */
  sort?: readonly SortKey[];
  onSort?: (keys: SortKey[]) => void;
  rowHeight?: number;
  selected?: string | null;
  onSelect?: (row: Row) => void;
  empty?: ComponentChildren;
  fill?: boolean;
}) {
  const { onSort } = props;
  const rowHeight = props.rowHeight ?? 26;
  const scroller = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const [focused, setFocused] = useState(-1);
  const sort = props.sort ?? [];
  const rows = useMemo(() => sortRows(props.rows, props.columns, sort), [props.rows, props.columns, sort]);
  const isVirtual = rows.length > VIRTUAL_ABOVE;

  const virtualizer = useMemo(
    () =>
      new Virtualizer<HTMLDivElement, HTMLTableRowElement>({
        count: 0,
        getScrollElement: () => scroller.current,
        estimateSize: () => rowHeight,
        overscan: 12,
        observeElementRect,
        observeElementOffset,
        scrollToFn: elementScroll,
      }),
    [],
  );
  virtualizer.setOptions({ ...virtualizer.options, count: isVirtual ? rows.length : 0, onChange: () => redraw(undefined) });
  useEffect(() => virtualizer._didMount(), []);
  useLayoutEffect(() => virtualizer._willUpdate());

  const visible = isVirtual ? virtualizer.getVirtualItems().map((item) => item.index) : rows.map((_, i) => i);
  const before = (visible[0] ?? 0) * rowHeight;
  const after = isVirtual ? Math.max(0, rows.length - 1 - (visible.at(-1) ?? 0)) * rowHeight : 0;

  const move = (to: number): void => {
    const next = Math.min(Math.max(to, 0), rows.length - 1);
    setFocused(next);
    if (isVirtual) virtualizer.scrollToIndex(next);
    else scroller.current?.querySelectorAll("tbody tr")[next]?.scrollIntoView({ block: "nearest" });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    if (event.key === "j" || event.key === "ArrowDown") move(focused + 1);
    else if (event.key === "k" || event.key === "ArrowUp") move(focused - 1);
    else if (event.key === "Enter" && rows[focused] !== undefined && event.target === event.currentTarget)
      props.onSelect?.(rows[focused] as Row);
    else return;
    event.preventDefault();
  };

  const spacer = (height: number) =>
    height > 0 && (
      <tr aria-hidden="true" class="spacer">
        <td colSpan={props.columns.length} style={{ height: `${height}px` }} />
      </tr>
    );

  return (
    <div
      class={`table-scroll ${props.fill ? "fill" : isVirtual ? "long" : ""}`}
      ref={scroller}
      tabIndex={0}
      role="region"
      aria-label={props.label}
      onKeyDown={onKeyDown}
    >
      <table class={props.fill ? "data fixed" : "data listed"} aria-rowcount={rows.length + 1}>
        <colgroup>
          {props.columns.map((column) => (
            <col key={column.id} style={column.width ? { width: `${Math.max(column.width, headWidth(column))}px` } : {}} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {props.columns.map((column) => {
              const key = sort.find((candidate) => candidate.id === column.id);
              const order = key ? (key.descending ? "descending" : "ascending") : "none";
              return (
                <th key={column.id} scope="col" class={column.numeric ? "num" : ""} aria-sort={onSort ? order : undefined} title={column.title}>
                  {onSort ? (
                    <button type="button" onClick={(event) => onSort(nextSort(sort, column.id, column.numeric ?? false, event.shiftKey))}>
                      {column.label}
                      {column.unit && <small>{column.unit}</small>}
                      {key && <span aria-hidden="true">{key.descending ? "↓" : "↑"}</span>}
                    </button>
                  ) : (
                    <>{column.label}{column.unit && <small>{column.unit}</small>}</>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {spacer(before)}
          {visible.map((at) => {
            const row = rows[at];
            if (row === undefined) return null;
            const key = props.rowKey(row);
            return (
              <tr
                key={key}
                aria-rowindex={at + 2}
                aria-selected={props.selected === key}
                class={at === focused ? "focused" : ""}
                style={{ height: `${rowHeight}px` }}
                onClick={() => {
                  setFocused(at);
                  props.onSelect?.(row);
                }}
              >
                {props.columns.map((column) => (
                  <td key={column.id} class={`${column.numeric ? "num" : ""} ${column.class ?? ""}`}>
                    {column.cell ? column.cell(row) : column.value(row)}
                  </td>
                ))}
              </tr>
            );
          })}
          {spacer(after)}
        </tbody>
      </table>
      {rows.length === 0 && <div class="table-empty">{props.empty ?? "No rows."}</div>}
    </div>
  );
}
