import { answer, api } from "../../api/client";
import { Credentials, type Kind } from "./Credentials";

const keys: Kind = {
  name: "API keys",
  thing: "key",
  sentence: "Programs send an API key with each request.",
  queryKey: ["api-keys"],
  list: (page, signal) => answer(api.GET("/v1/api-keys", { params: { query: { ...(page && { page_token: page }) } }, signal })),
  create: async ({ signatures: _, ...body }) => (await answer(api.POST("/v1/api-keys", { body }))).key,
  rotate: async (id, overlap_seconds) => (await answer(api.POST("/v1/api-keys/{id}/rotate", { params: { path: { id } }, body: { overlap_seconds } }))).key,
  revoke: (id) => answer(api.POST("/v1/api-keys/{id}/revoke", { params: { path: { id } } })),
};

/** Shows the API keys. */
export function APIKeys() {
  return <Credentials of={keys} />;
}
