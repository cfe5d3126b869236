import { answer, api } from "../../api/client";
import { Credentials, type Kind } from "./Credentials";

const secrets: Kind = {
  name: "HMAC secrets",
  thing: "secret",
  sentence: "Programs sign their requests with an HMAC secret, which is never sent. Two can be valid at a time.",
  queryKey: ["hmac-secrets"],
  signs: true,
  list: (page, signal) => answer(api.GET("/v1/hmac-secrets", { params: { query: { ...(page && { page_token: page }) } }, signal })),
  create: async (body) => (await answer(api.POST("/v1/hmac-secrets", { body }))).secret,
  rotate: async (id, overlap_seconds) => (await answer(api.POST("/v1/hmac-secrets/{id}/rotate", { params: { path: { id } }, body: { overlap_seconds } }))).secret,
  revoke: (id) => answer(api.POST("/v1/hmac-secrets/{id}/revoke", { params: { path: { id } } })),
};

/** Shows the HMAC secrets. */
export function HMACSecrets() {
  return <Credentials of={secrets} />;
}
