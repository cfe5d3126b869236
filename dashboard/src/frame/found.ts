import { queryOptions } from "@tanstack/react-query";
import type { LinkProps } from "@tanstack/react-router";
import { answer, api } from "../api/client";
import type { Session } from "../api/session";
import { furtherScreens, screens } from "./screens";

/** A search result of Find, with a link to the screen that shows it. */
export interface Place {
  kind: "screen" | "customer" | "meter" | "sync" | "event";
  id: string;
  name: string;
  link: Pick<LinkProps, "to" | "params" | "search">;
}

const most = 5; // customers, and as many meters
const mostMeters = 1_000;
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Queries the results that match a text and that the member may see. An empty text matches the main sections. */
export const searchResults = (text: string, { permissions }: Session) =>
  queryOptions({
    queryKey: ["found", text],
    async queryFn({ signal }): Promise<Place[]> {
      const has = (...names: string[]) => names.some((name) => name.toUpperCase().includes(text.toUpperCase()));
      const may = (permission: string) => text !== "" && permissions.includes(permission);
      const [customers, meters] = await Promise.all([
        may("customers:read") ? answer(api.GET("/v1/customers", { params: { query: { search: text, page_size: most } }, signal })) : null,
        may("meters:read") ? answer(api.GET("/v1/meters", { params: { query: { page_size: mostMeters } }, signal })) : null,
      ]);
      return [
        ...(customers?.data ?? []).map(
          ({ id, name, external_id }): Place => ({ kind: "customer", id, name: name || external_id, link: { to: "/customers/$customer/usage", params: { customer: id } } }),
        ),
        ...(meters?.data ?? [])
          .filter(({ id, slug, name }) => id === text || has(slug, name))
          .slice(0, most)
          .map(({ slug, name }): Place => ({ kind: "meter", id: slug, name: name || slug, link: { to: "/meters/$meter/prices", params: { meter: slug } } })),
        ...(may("billing:read") && uuid.test(text) ? [{ kind: "sync", id: text, name: text, link: { to: "/billing/syncs/$sync", params: { sync: text } } } satisfies Place] : []),
        ...[...screens, ...(text === "" ? [] : furtherScreens)].filter(([, name]) => has(name)).map(([to, name]): Place => ({ kind: "screen", id: to, name, link: { to } })),
        ...(may("events:read") ? [{ kind: "event", id: text, name: `Events with the key ${text}`, link: { to: "/events", search: { key: text } } } satisfies Place] : []),
      ];
    },
    staleTime: 30_000,
  });
