/** The frame: rail, page, and what lies over them. */
import { useState } from "preact/hooks";

import { api } from "./api/client";
import { useResource } from "./api/resource";
import { allCaptures, captures, useCapturesRefresh } from "./captures-store";
import { KeysOverlay, Palette, SettingsDialog } from "./components/overlays";
import { Rail, toggleRail } from "./components/rail";
import { useShortcuts, type Shortcut } from "./keys";
import { CapturesPage } from "./pages/captures/page";
import { ComparePage } from "./pages/compare/page";
import { NotFoundPage } from "./pages/not-found";
import { SchedulesPage } from "./pages/schedules";
import { ToolPage } from "./pages/tool/page";
import { PLACES, toolPath } from "./tools/pages";
import { go, href, parameter, path, setQuery } from "./url";

export interface Route {
  readonly page: "captures" | "compare" | "schedules" | "tool" | "unknown";
  readonly capture: string | null;
  readonly tool: string | null;
}

export function routeOf(pathname: string): Route {
  const [first = "", id, tool, ...rest] = pathname.split("/").filter((part) => part !== "").map(decodeURIComponent);
  if (rest.length === 0) {
    if (first === "" || (first === "captures" && id === undefined)) return { page: "captures", capture: null, tool: null };
    if (first === "compare" && id === undefined) return { page: "compare", capture: null, tool: null };
    if (first === "schedules" && id === undefined) return { page: "schedules", capture: null, tool: null };
    if (first === "captures" && id !== undefined) return { page: "tool", capture: id, tool: tool ?? "overview_page" };
  }
  return { page: "unknown", capture: null, tool: null };
}

type Overlay = "keys" | "palette" | "settings" | null;

export function App() {
  useCapturesRefresh();
  const route = routeOf(path.value);
  const [overlay, setOverlay] = useState<Overlay>(null);
  const state = allCaptures.value.find((capture) => capture.id === route.capture)?.analysis;
  const tools = useResource(
    route.capture === null ? null : `${route.capture} ${state?.state ?? ""} ${state?.hosts_done ?? ""}`,
    async (abort) => (await api.tools(route.capture as string, abort)).items,
  );

  const open = (tool: string): void => {
    if (route.capture) go(href(toolPath(route.capture, tool), { host: parameter("host"), step: parameter("step") }));
  };
  const keys: Shortcut[] = [
    { keys: "mod+k", what: "Command palette", run: () => setOverlay("palette"), scope: "everywhere" },
    { keys: "?", what: "Keys", run: () => setOverlay("keys"), scope: "everywhere" },
    { keys: "[", what: "Fold the rail", run: toggleRail, scope: "everywhere" },
    { keys: "/", what: "Search in the page", run: () => document.querySelector<HTMLInputElement>("[data-search]")?.focus(), scope: "everywhere" },
    {
      keys: "c",
      what: "New capture",
      run: () => (route.page === "captures" ? setQuery({ new: 1 }) : go("/captures?new=1")),
      scope: "everywhere",
    },
    { keys: "g c", what: "Captures", run: () => go("/captures"), scope: "everywhere" },
    { keys: "g d", what: "Compare", run: () => go(href("/compare", { capture: route.capture })), scope: "everywhere" },
    ...[...PLACES].flatMap(([name, place]): Shortcut[] =>
      route.capture && place.key && tools.value.value?.some((tool) => tool.name === name)
        ? [{ keys: `g ${place.key}`, what: place.title, run: () => open(name), scope: "everywhere" }]
        : [],
    ),
    { keys: "escape", what: "Close", run: () => (document.activeElement as HTMLElement | null)?.blur(), scope: "everywhere" },
  ];
  useShortcuts(keys, [path.value, tools.value.value]);

  return (
    <div class="frame">
      <Rail
        capture={route.capture}
        tools={tools.value.value ?? []}
        onHelp={() => setOverlay("keys")}
        onPalette={() => setOverlay("palette")}
        onSettings={() => setOverlay("settings")}
      />
      <main>
        {route.page === "captures" && <CapturesPage />}
        {route.page === "compare" && <ComparePage />}
        {route.page === "schedules" && <SchedulesPage />}
        {route.page === "unknown" && <NotFoundPage />}
        {route.page === "tool" && (
          <ToolPage
            key={route.capture}
            id={route.capture as string}
            tool={route.tool as string}
            tools={tools.value.value}
            toolsError={tools.error.value}
          />
        )}
      </main>
      {overlay === "keys" && <KeysOverlay onClose={() => setOverlay(null)} />}
      {overlay === "settings" && <SettingsDialog onClose={() => setOverlay(null)} />}
      {overlay === "palette" && (
        <Palette capture={route.capture} captures={captures.value ?? []} tools={tools.value.value ?? []} onClose={() => setOverlay(null)} />
      )}
    </div>
  );
}
