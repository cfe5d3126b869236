import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { defineConfig } from "@playwright/test";
import { stepTimeout, system } from "./e2e/system";

/** The installed Chromium or Chrome. Playwright downloads no browser. */
const browser = (process.env.PATH ?? "")
  .split(delimiter)
  .flatMap((folder) => ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].map((name) => join(folder, name)))
  .find(existsSync);

export default defineConfig({
  testDir: "e2e",
  outputDir: "../.dev/playwright",
  workers: 1, // the files run in the order of their names, because a file uses the data of the files before it
  maxFailures: 1,
  grep: new RegExp(process.env.ONLY ?? ""),
  timeout: 3 * 60_000,
  expect: { timeout: stepTimeout, toPass: { timeout: stepTimeout } },
  reporter: "list",
  reportSlowTests: null,
  use: {
    ...(browser ? { launchOptions: { executablePath: browser } } : { channel: "chrome" }),
    baseURL: system.url,
    viewport: { width: 1280, height: 800 },
    actionTimeout: stepTimeout,
    navigationTimeout: stepTimeout,
  },
});
