/** Every device of every host, chip by chip, coloured by what it does in a step. */
import type { ToolResult } from "../../api/types";
import { Panel } from "../../components/basics";
import { Combobox } from "../../components/combobox";
import { HeatMatrix, HeatScale } from "../../components/heat-map";
import { WithTable } from "../../components/stacked-columns";
import { change, percent, plural, shortNames } from "../../format/numbers";
import { deviceGrid, gridKey, overMedian, type PodSteps } from "../../tools/pod";
import { parameter, setQuery } from "../../url";

const MAX_GRID_HOSTS = 64;
const OWN = "own";
const QUIET_RATIO = 0.06;

export function DevicesPanel(props: { result: ToolResult; pod: PodSteps; step: string; host: string | null; late: readonly string[] }) {
  const { pod, step, host } = props;
  const grid = deviceGrid(props.result);
  if (!grid || grid.hosts.length > MAX_GRID_HOSTS) return null;
  const asked = parameter("colour");
  const category = pod.categories.find((one) => one.id === asked) ?? null;
  const units = pod.cores.get(step) ?? [];
  const over = overMedian(units);
  const values = new Map(
    units.map((unit) => [`${unit.host}\n${unit.core ?? ""}`, category ? (unit.totalMs > 0 ? (unit.parts.get(category.id) ?? 0) / unit.totalMs : 0) : (over.get(unit.key) ?? 0)]),
  );
  const valueOf = (row: string, column: string): number | null => {
    const core = grid.cores.get(gridKey(row, column));
    return core === undefined ? null : (values.get(`${row}\n${core}`) ?? null);
  };
  const words = (value: number): string => (category ? percent(value) : change(value));
  const hottest = Math.max(category ? 0.01 : QUIET_RATIO, ...values.values());
  const what = category ? `${category.label.toLowerCase()}, share of the step` : "own work against the step's median";
  const names = shortNames(grid.hosts);
  return (
    <Panel
      title="Devices"
      subtitle={`step ${step}, host × chip${grid.isOrdered ? ", in the pod's order" : ""}; ${what}`}
      tools={
        <>
          <HeatScale low="0%" high={words(hottest)} />
          <Combobox
            label="Colour"
            value={category?.id ?? OWN}
            options={[{ value: OWN, text: "Own work" }, ...pod.categories.map((one) => ({ value: one.id, text: one.label }))]}
            onChange={(value) => setQuery({ colour: value === OWN ? null : value })}
          />
        </>
      }
    >
      <WithTable
        label="devices"
        table={() => (
          <table class="data">
            <thead><tr><th scope="col">Host</th>{grid.columns.map((column) => <th scope="col" class="num" key={column}>Chip {column}</th>)}</tr></thead>
            <tbody>
              {grid.hosts.map((row) => (
                <tr key={row}>
                  <th scope="row">{row}</th>
                  {grid.columns.map((column) => {
                    const value = valueOf(row, column);
                    return <td class="num" key={column}>{value === null ? "absent" : words(value)}</td>;
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        )}
      >
        <div class="chart-pad" data-testid="devices">
          <HeatMatrix
            rows={grid.hosts}
            names={names}
            columns={grid.columns}
            columnWord="chip"
            hottest={hottest}
            sentence={`${plural(grid.cores.size, "device")} of ${plural(grid.hosts.length, "host")} at step ${step}: ${what}, at most ${words(hottest)}.`}
            cell={(row, column) => {
              const value = valueOf(row, column);
              return value === null ? null : { row, column, value, text: words(value).replace(/\.\d%$/, "%") };
            }}
            selectedColumn={null}
            selectedRow={host}
            strongRows={new Set(props.late)}
            onSelect={(row) => setQuery({ host: row })}
          />
        </div>
      </WithTable>
    </Panel>
  );
}
