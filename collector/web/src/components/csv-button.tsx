/** Takes the rows along as a file: as filtered and sorted, raw units, full precision. */
import type { Cell } from "../api/types";
import { csv, save } from "../format/csv";
import { Icon } from "./icons";

export function CsvButton(props: {
  file: string;
  header: readonly string[];
  /** Made when it is asked for. */
  rows: () => readonly (readonly Cell[])[];
  /** On a chart, where an icon has to do: what the file holds. */
  label?: string;
}) {
  const download = (): void => save(`${props.file}.csv`, csv(props.header, props.rows()));
  if (props.label) {
    return <button type="button" class="icon-button" aria-label={props.label} title={props.label} onClick={download}><Icon name="download" /></button>;
  }
  return <button type="button" class="button bare" onClick={download}><Icon name="download" />CSV</button>;
}
