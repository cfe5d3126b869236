import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./client";
import { readEvents } from "./events";

/** Queries a page of the events that were not counted because of their idempotency key. */
export const conflicts = (page: string | undefined) =>
  queryOptions({
    queryKey: ["conflicts", { page }],
    queryFn: ({ signal }) => answer(api.GET("/v1/events/conflicts", { params: { query: { page_size: 25, ...(page && { page_token: page }) } }, signal })),
    placeholderData: keepPreviousData,
  });

/** Queries the event that was stored under a key. The API searches back from now, page by page. */
export const storedUnder = (key: string) =>
  queryOptions({
    queryKey: ["stored under", key],
    async queryFn({ signal }) {
      for (let token: string | null = null; ; ) {
        const page: Schema<"EventPage"> = await readEvents({ idempotency_key: key, ...(token && { page_token: token }) }, signal);
        token = page.next_page_token;
        if (page.data[0] || !token) return page.data[0] ?? null;
      }
    },
  });
