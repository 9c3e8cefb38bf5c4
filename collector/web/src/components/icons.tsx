/** The drawings of the frame: 16 px, one stroke, the colour of the text. */
const PATHS = {
  captures: "M2.5 3.5h11M2.5 8h8M2.5 12.5h11",
  compare: "M2.5 3h4.4v10H2.5zM9.1 3h4.4v10H9.1zM4.7 5.5v5M11.3 7.5v3",
  swap: "M2.5 5.5h9m0 0L9 3M11.5 5.5 9 8M13.5 10.5h-9m0 0L7 8M4.5 10.5 7 13",
  schedules: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 2.8V8l2.2 1.6",
  overview_page: "M2.5 2.5h4.4v6H2.5zM9.1 2.5h4.4V6H9.1zM2.5 10.7h4.4v2.8H2.5zM9.1 8.2h4.4v5.3H9.1z",
  pod_viewer: "M3 13.5v-6M6.3 13.5v-11M9.7 13.5v-7M13 13.5v-4",
  table: "M2.5 3h11v10h-11zM2.5 6.3h11M2.5 9.6h11M6.5 6.3V13",
  chart: "M2.5 13.5v-11M2.5 13.5h11M5 11l3-4 2 2 3.5-5",
  tree: "M3 2.5v9.5h4M3 6h4M9.5 3.5h4M9.5 6h4M9.5 12h4",
  input: "M2.5 3 8 8m0 0 5.5-5M8 8v5.5",
  bolt: "M9 1.8 3.5 9H8l-1 5.2L12.5 7H8z",
  memory: "M1.8 12.5 5 6.5l2.4 4L10 3.5l1.6 5h2.6",
  graph: "M4.5 3.5h.01M11.5 3.5h.01M8 12.5h.01M4.5 5v2L8 9m3.5-4v2L8 9m0 0v2",
  check: "m3.5 8.5 3 3 6-7",
  warn: "M8 2.2 14.3 13.3H1.7zM8 6.5v3M8 11.4v.1",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 5v4M8 4.9V5",
  error: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM5.9 5.9l4.2 4.2m0-4.2-4.2 4.2",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.4 10.4l3.2 3.2",
  chevron: "m4.5 6.3 3.5 3.5 3.5-3.5",
  left: "M9.7 4.5 6.2 8l3.5 3.5",
  right: "M6.3 4.5 9.8 8l-3.5 3.5",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  close: "m4 4 8 8m0-8-8 8",
  download: "M8 2.5v7m0 0L5 6.8M8 9.5l3-2.7M2.8 13h10.4",
  link: "M6.7 9.3a2.4 2.4 0 0 0 3.4 0l2.4-2.4a2.4 2.4 0 0 0-3.4-3.4l-.8.8m1 2.4a2.4 2.4 0 0 0-3.4 0L3.5 9.1a2.4 2.4 0 0 0 3.4 3.4l.8-.8",
  fold: "M2.5 3h11v10h-11zM6.3 3v10",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6ZM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  pin: "M6 2h4M6.8 2l-.4 4.5L4 9h8L9.6 6.5 9.2 2M8 9v5",
  up: "M8 12.5v-9m0 0L4.5 7M8 3.5 11.5 7",
  down: "M8 3.5v9m0 0L4.5 9M8 12.5 11.5 9",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.3 4.5l.6 9h6.2l.6-9",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, class: extra }: { name: IconName; class?: string }) {
  return (
    <svg class={`icon ${extra ?? ""}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
      <rect class="logo-a" x="1" y="8" width="3.6" height="7" rx="0.8" />
      <rect class="logo-b" x="6.2" y="5" width="3.6" height="10" rx="0.8" />
      <rect class="logo-c" x="11.4" y="1" width="3.6" height="14" rx="0.8" />
    </svg>
  );
}
