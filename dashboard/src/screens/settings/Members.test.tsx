import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { router } from "../../router";
import { answers, asked, list, member, open, press, sent, session, type } from "../../testing";

const owner = { ...member, role: "owner" };
const bea = { ...member, id: "member_2", email: "bea@example.com", name: "Bea", role: "billing" };
const invited = {
  ...{ token: "T0KEN", url: "https://odometer.example.com/invitation#T0KEN", id: "inv_1", tenant_id: "ten_1", member_id: null, email: "carl@example.com" },
  ...{ name: "", role: "viewer", token_last_four: "0KEN", created_at: "2026-11-01T00:00:00Z", created_by: "member_1", expires_at: "2026-11-08T00:00:00Z" },
};

beforeEach(() => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, member: owner, permissions: ["tenant:manage", "api_keys:manage"] }];
  answers["GET /v1/tenant/members"] = () => [200, list(owner, bea)];
  answers["GET /v1/tenant/invitations"] = () => [200, list()];
  answers["GET /v1/api-keys"] = () => [200, list({ id: "key_1", name: "billing job", last_four: "jK2L", created_by: "member_2", handed_to: null, revoked_at: null })];
  answers["GET /v1/hmac-secrets"] = () => [200, list()];
});

test("inviting a member shows the invitation link once", async () => {
  answers["POST /v1/tenant/members"] = () => [201, invited];
  open("/settings/members");
  await screen.findByText("No invitation is pending.");
  await press("Invite a member");
  await screen.findByRole("dialog");
  type("E-mail", "carl@example.com");
  await press("Create the invitation");
  await screen.findByText(invited.url);
  expect(sent("POST /v1/tenant/members")).toEqual([{ email: "carl@example.com", name: "", role: "viewer" }]);
  await press("I have copied it");
  await press("Close without copying");
  await waitFor(() => expect(screen.queryByText(invited.url)).toBeNull());
});

test("the list shows the new name of an edited member", async () => {
  answers["PATCH /v1/tenant/members/member_2"] = () => {
    const renamed = { ...bea, name: "Beatrice" };
    answers["GET /v1/tenant/members"] = () => [200, list(owner, renamed)];
    return [200, renamed];
  };
  open("/settings/members?member=member_2");
  fireEvent.click(await screen.findByRole("button", { name: "Edit Bea" }));
  await screen.findByRole("dialog");
  type("Name", "Beatrice");
  await press("Save the member");
  await screen.findByRole("button", { name: "Edit Beatrice" });
  expect(sent("PATCH /v1/tenant/members/member_2")).toEqual([{ name: "Beatrice" }]);
});

test("removing a member lists the member's credentials, and the owner can revoke them", async () => {
  answers["DELETE /v1/tenant/members/member_2"] = () => [200, { id: "member_2", removed: true }];
  open("/settings/members?member=member_2");
  fireEvent.click(await screen.findByRole("button", { name: "Remove Bea" }));
  await screen.findByText("The member's credentials: billing job …jK2L.");
  fireEvent.change((await screen.findByRole("combobox")), { target: { value: "revoke" } });
  fireEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Remove Bea" }));
  await waitFor(() => expect(asked.find(({ name }) => name === "DELETE /v1/tenant/members/member_2")?.url).toContain("?keys=revoke"));
});

test("the listed credentials of a member include credentials that the member's credentials created", async () => {
  const key = { name: "", last_four: "jK2L", handed_to: null, revoked_at: null, expires_at: null };
  answers["GET /v1/hmac-secrets"] = () => [200, list({ ...key, id: "sec_1", name: "signing", created_by: "key_2" }, { ...key, id: "sec_2", name: "handed over", created_by: "key_2", handed_to: "member_1" })];
  answers["GET /v1/api-keys"] = () =>
    asked.at(-1)?.url.includes("page_token=next")
      ? [200, list({ ...key, id: "key_1", name: "provisioning", created_by: "member_2" }, { ...key, id: "key_4", name: "expired", created_by: "member_2", expires_at: "2020-01-01T00:00:00Z" })]
      : [200, { ...list({ ...key, id: "key_3", name: "another", created_by: "member_1" }, { ...key, id: "key_2", name: "revoked", created_by: "key_1", revoked_at: "2026-11-01T00:00:00Z" }), has_more: true, next_page_token: "next" }];
  open("/settings/members?member=member_2");
  fireEvent.click(await screen.findByRole("button", { name: "Remove Bea" }));
  await screen.findByText("The member's credentials: provisioning …jK2L, signing …jK2L.");
});

test("accepting an invitation sends the token of the link only in request bodies", async () => {
  answers["GET /v1/auth/session"] = () => [401, { title: "Problem", detail: "missing", status: 401, code: "x", request_id: "R", errors: [] }];
  answers["POST /v1/invitations/find"] = () => [200, { tenant_name: "Acme", email: "carl@example.com", name: "", role: "viewer", reset: false, issuer: null, expires_at: invited.expires_at }];
  answers["POST /v1/invitations/accept"] = () => {
    answers["GET /v1/auth/session"] = () => [200, session];
    return [200, { token: "t", member }];
  };
  open("/invitation#T0KEN");
  await screen.findByRole("heading", { name: "Join Acme" });
  expect((await screen.findByLabelText<HTMLInputElement>("E-mail")).value).toBe("carl@example.com");
  type("Password", "seven wet umbrellas sing");
  await press("Accept the invitation");
  await screen.findByRole("heading", { name: "Overview" });
  expect(sent("POST /v1/invitations/find")).toEqual([{ token: "T0KEN" }]);
  expect(sent("POST /v1/invitations/accept")).toEqual([{ token: "T0KEN", password: "seven wet umbrellas sing" }]);
  expect(asked.map(({ name }) => name).join()).not.toContain("T0KEN");
  expect(router.state.location.hash).toBe("");
});

test("an invitation link that is no longer valid shows so", async () => {
  answers["POST /v1/invitations/find"] = () => [404, { title: "Problem", detail: "there is no such invitation", status: 404, code: "not_found", request_id: "R", errors: [] }];
  open("/invitation#OLD");
  await screen.findByRole("heading", { name: "This link is no longer valid" });
});
