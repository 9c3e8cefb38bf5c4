/** Starts the pages. */
import { render } from "preact";

import { App } from "./app";
import { listenForKeys } from "./keys";
import { restoreTheme } from "./theme";
import { listen } from "./url";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/components.css";
import "./styles/pages.css";
import "./styles/compare.css";

restoreTheme();
listen();
listenForKeys();
render(<App />, document.getElementById("app") as HTMLElement);
