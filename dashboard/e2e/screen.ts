import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { expect, type Page } from "@playwright/test";
import type axe from "axe-core";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Requires that axe-core finds no violation, and that the page is not wider than the window. */
export async function expectUsable(page: Page, name: string) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axeSource);
  const violations = await page.evaluate(async () => {
    const { violations } = await (window as unknown as { axe: typeof axe }).axe.run(document, { resultTypes: ["violations"] });
    return violations.map(({ id, help, nodes }) => `${id}: ${help} at ${nodes.map(({ target }) => target.join(" ")).join(", ")}`);
  });
  expect(violations, name).toEqual([]);
  expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), `${name} is wider than the window`).toBeLessThanOrEqual(0);
}

/** The maximum sum of layout shifts while a screen loads, as Chromium measures them. */
const mostShift = 0.02;

/**
 * Requires that the layout does not shift while a screen opens. A screen has three attempts, because live content can
 * change during one attempt.
 */
export async function expectStill(page: Page, name: string, open: () => Promise<void>) {
  let shift = { sum: 0, of: [] as string[] };
  for (let attempt = 0; attempt < 3; attempt++) {
    await open();
    shift = await layoutShift(page);
    if (shift.sum <= mostShift) return;
  }
  expect(shift.sum, `${name} moves while it loads: ${shift.of}`).toBeLessThanOrEqual(mostShift);
}

/** Returns the layout shift since the screen was opened, and the elements of the two largest shifts. */
const layoutShift = (page: Page) =>
  page.evaluate(async () => {
    interface Shift extends PerformanceEntry {
      value: number;
      hadRecentInput: boolean;
      sources: { node: Node | null }[];
    }
    const shifts: Shift[] = [];
    new PerformanceObserver((list) => shifts.push(...(list.getEntries() as Shift[]))).observe({ type: "layout-shift", buffered: true });
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    await new Promise((resolve) => setTimeout(resolve, 50)); // the observer is called later than the frame
    const own = shifts.filter(({ hadRecentInput }) => !hadRecentInput).sort((a, b) => b.value - a.value);
    const named = ({ node }: { node: Node | null }) => (node instanceof Element ? `${node.tagName}.${node.className}` : `${node?.parentElement?.tagName}: ${node?.textContent?.slice(0, 40)}`);
    return { sum: own.reduce((sum, { value }) => sum + value, 0), of: own.slice(0, 2).flatMap(({ sources }) => sources.map(named)) };
  });
