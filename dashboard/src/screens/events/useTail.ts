import { useEffect, useState } from "react";
import type { Schema } from "../../api/client";

type Page = Schema<"EventPage">;

/** How far down the list is where somebody reads it. */
const readFrom = 160;

/**
 * What is shown of a page that is read again and again. It stands still while one of its events is
 * opened or somebody has scrolled down; what has come since is counted, and shown when they ask.
 */
export function useTail(latest: Page | undefined, opened: string | undefined) {
  const [held, hold] = useState(latest);
  const reads = (page: Page) => window.scrollY > readFrom || page.data.some(({ id }) => id === opened);
  useEffect(() => {
    if (latest && !(held && reads(held))) hold(latest);
  }, [latest, opened]);
  const shown = held ?? latest;
  const show = () => {
    hold(latest);
    window.scrollTo(0, 0);
  };
  return { shown, fresh: shown && latest ? added(shown, latest) : 0, show };
}

/** How many events of the latest page are not on the one that is shown. */
export function added(shown: Pick<Page, "data">, latest: Pick<Page, "data">): number {
  const known = new Set(shown.data.map(({ id }) => id));
  return latest.data.filter(({ id }) => !known.has(id)).length;
}
