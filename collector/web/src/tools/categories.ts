/** The parts of a step in their stack order, with the names that results may carry for them. */

export interface Category {
  readonly id: string;
  readonly label: string;
  readonly short: string;
}

/** From the bottom of the stack to its top. */
export const CATEGORIES: readonly Category[] = [
  { id: "compute", label: "Device compute", short: "Compute" },
  { id: "d2d", label: "Device to device", short: "Device to device" },
  { id: "collective", label: "Collectives", short: "Collectives" },
  { id: "host", label: "Host compute", short: "Host" },
  { id: "launch", label: "Kernel launch", short: "Launch" },
  { id: "input", label: "Input", short: "Input" },
  { id: "output", label: "Output", short: "Output" },
  { id: "compile", label: "Compilation", short: "Compilation" },
  { id: "other", label: "All others", short: "Other" },
  { id: "idle", label: "Idle", short: "Idle" },
];

const BY_ID = new Map(CATEGORIES.map((category) => [category.id, category]));

// In this order: "device to device" must not be taken for compute, "all others" not for a host part.
const RULES: readonly (readonly [RegExp, string])[] = [
  [/device.?to.?device|d2d|sparse.?core.?comp|wait.?device/, "d2d"],
  [/collective|all.?reduce|all.?to.?all|send|recv/, "collective"],
  [/launch|prepare/, "launch"],
  [/infeed|input|host.?to.?device|h2d|wait.?host/, "input"],
  [/outfeed|output|device.?to.?host|d2h/, "output"],
  [/compil/, "compile"],
  [/idle/, "idle"],
  [/other|unknown/, "other"],
  [/device.?comp|tensor.?core|tc.?comp|compute.?(16|32)|high.?flops|low.?flops|^compute|^tc_/, "compute"],
  [/host/, "host"],
];

/** The category that a result's name for a part of a step belongs to. */
export function categoryOf(name: string): Category {
  const plain = name.toLowerCase();
  const id = RULES.find(([pattern]) => pattern.test(plain))?.[1] ?? "other";
  return BY_ID.get(id) as Category;
}

export const stackOrder = (id: string): number => CATEGORIES.findIndex((category) => category.id === id);
