/** The capture that the tree is compared with. */
import type { Capture } from "../../api/types";
import { allCaptures } from "../../captures-store";
import { Combobox } from "../../components/combobox";
import { ago } from "../../format/time";
import { parameter, setQuery } from "../../url";
import { runOf, startedAt } from "../captures/filter";

const MOST_CAPTURES = 50;

export function BaseChooser({ capture }: { capture: Capture }) {
  const chosen = parameter("base");
  const now = new Date();
  const usable = allCaptures.value.filter((one) => one.id !== capture.id && (one.analysis?.state === "done" || one.id === chosen));
  if (usable.length === 0) return null;
  // Those of the same run are what one compares with first.
  const isSame = (one: Capture): boolean => runOf(one) === runOf(capture);
  const ordered = [...usable.filter(isSame), ...usable.filter((one) => !isSame(one))].slice(0, MOST_CAPTURES);
  return (
    <Combobox
      label="Compare with"
      value={chosen ?? ""}
      options={[{ value: "", text: "Nothing" }, ...ordered.map((one) => ({ value: one.id, text: isSame(one) ? one.session : `${runOf(one)}, ${one.session}`, note: ago(startedAt(one), now) }))]}
      onChange={(base) => setQuery({ base: base || null, ...(base ? {} : { sort: null }) })}
    />
  );
}
