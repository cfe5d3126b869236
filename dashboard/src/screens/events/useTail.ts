import { useEffect, useState } from "react";
import type { Schema } from "../../api/client";

type Page = Schema<"EventPage">;

/** Scroll position, in pixels, beyond which a user counts as reading the list. */
const readFrom = 160;

/**
 * Returns the page of events to show while the latest page is polled. The shown page does not change while one of its
 * events is open or the user has scrolled down. fresh is the number of newer events, and show shows them.
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

/** Returns the number of events on the latest page that are not on the shown page. */
export function added(shown: Pick<Page, "data">, latest: Pick<Page, "data">): number {
  const known = new Set(shown.data.map(({ id }) => id));
  return latest.data.filter(({ id }) => !known.has(id)).length;
}
