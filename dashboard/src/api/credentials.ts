import { queryOptions } from "@tanstack/react-query";
import { answer, api } from "./client";

interface Page<Item> {
  data: Item[];
  next_page_token: string | null;
}

/** Reads all pages of a list. */
async function allOf<Item>(read: (query: { page_size: number; page_token?: string }) => Promise<Page<Item>>) {
  const all: Item[] = [];
  for (let token: string | null = ""; token !== null; ) {
    const page: Page<Item> = await read({ page_size: 1000, ...(token && { page_token: token }) });
    all.push(...page.data);
    token = page.next_page_token;
  }
  return all;
}

/**
 * Queries the valid credentials under the responsibility of an actor: credentials that the actor created or took over,
 * and credentials that these created.
 */
export const credentialsOf = (actor: string) =>
  queryOptions({
    queryKey: ["api-keys", "of", actor],
    async queryFn({ signal }) {
      const [keys, secrets] = await Promise.all([
        allOf((query) => answer(api.GET("/v1/api-keys", { params: { query }, signal }))),
        allOf((query) => answer(api.GET("/v1/hmac-secrets", { params: { query }, signal }))),
      ]);
      const all = [...keys, ...secrets];
      const responsible = new Set([actor]);
      for (let known = 0; known < responsible.size; ) {
        known = responsible.size;
        for (const { id, created_by, handed_to } of all) if (responsible.has(handed_to ?? created_by)) responsible.add(id);
      }
      return all.filter(({ id, revoked_at, expires_at }) => responsible.has(id) && !revoked_at && (!expires_at || Date.parse(expires_at) > Date.now()));
    },
  });
