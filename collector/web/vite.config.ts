import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

// `npm run dev` shows the pages of a running service: podscope up --port 8080.
const service = process.env["PODSCOPE_URL"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  server: { proxy: { "/api": service } },
  build: {
    outDir: fileURLToPath(new URL("../podscope_collector/static", import.meta.url)),
    emptyOutDir: true,
    // light-dark() stays as written only for browsers that know it.
    target: ["chrome123", "firefox121", "safari17.5"],
    // The content security policy allows no data: addresses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  test: { include: ["tests/**/*.test.{ts,tsx}"] },
});
