import { readdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** A plugin that writes a compressed copy beside each asset, so that the API compresses nothing. */
const compressed: Plugin = {
  name: "compressed",
  apply: "build",
  async closeBundle() {
    const folder = at("dist/built/assets");
    for (const name of await readdir(folder)) {
      await writeFile(`${folder}/${name}.gz`, gzipSync(await readFile(`${folder}/${name}`), { level: 9 }));
    }
  },
};

export default defineConfig({
  plugins: [react(), compressed],
  resolve: {
    // The dashboard uses the client that users receive, from its source.
    alias: { "@odometer-metering/client": at("../client/typescript/client.ts") },
    dedupe: ["openapi-fetch", "lossless-json", "uuid"], // the client's dependencies, from the dashboard's packages
  },
  build: {
    outDir: "dist/built",
    chunkSizeWarningLimit: 1100, // KiB before compression, which reduces it to a third
    assetsInlineLimit: 0, // the policy allows no data: URL
    modulePreload: { polyfill: false }, // the polyfill would be a script in the page
  },
  server: {
    proxy: { "/v1": "http://127.0.0.1:8080", "/docs": "http://127.0.0.1:8080" },
  },
  // Tests share one document and the loaded modules: loading them anew for each file took half of the time.
  test: { dir: "src", environment: "jsdom", isolate: false, setupFiles: "src/testing.tsx", restoreMocks: true, testTimeout: 600_000, hookTimeout: 600_000 },
});
