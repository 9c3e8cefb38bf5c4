/** A ranked list with bars, each a filter that a second click takes back. */
import { percent } from "../format/numbers";
import type { Ranked } from "../tools/framework-ops";
import { Bar } from "./basics";

export function RankedBars(props: { title: string; rows: readonly Ranked[]; chosen: string; onChoose: (name: string) => void; mono?: boolean }) {
  return (
    <section class="ranked">
      <h2>{props.title}</h2>
      {props.rows.length === 0 && <p class="quiet">The capture names none.</p>}
      <ol>
        {props.rows.map((row) => (
          <li key={row.name}>
            <button type="button" aria-pressed={props.chosen === row.name} onClick={() => props.onChoose(props.chosen === row.name ? "" : row.name)} title={row.name}>
              <span class={`cut ${props.mono ? "mono" : ""}`}>{row.name}</span>
              <Bar ratio={row.ratio} />
              <span class="num">{percent(row.ratio)}</span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}
