import { defineConfig } from "vite";

export default defineConfig({
  build: {
    target: "es2022",
    // The policy of the console allows no data: URLs.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
