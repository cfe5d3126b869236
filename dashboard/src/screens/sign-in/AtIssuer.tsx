import { Button, TextInput } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { answer, api, brokenRule } from "../../api/client";
import { Page } from "./Page";

/** Signs a user in at the OIDC issuer of a tenant. The user must know the id of the tenant. */
export function AtIssuer() {
  const [tenant, setTenant] = useState("");
  const path = { tenant_id: tenant.trim() };
  // This page sends the request first, so that it can show why the issuer's page cannot be opened.
  const attempt = useAct(() => answer(api.GET("/v1/auth/oidc/{tenant_id}/login", { params: { path }, parseAs: "text" })), {
    changes: [],
    leads: () => ({ href: `/v1/auth/oidc/${encodeURIComponent(path.tenant_id)}/login`, reloadDocument: true }),
  });
  return (
    <Page title="Sign in through an issuer" ways={<Link to="/sign-in">Sign in with a password</Link>} onSubmit={() => attempt.mutate()}>
      <TextInput
        label="Tenant"
        description="The tenant's ID, such as ten_42. Ask the member who invited you"
        required
        withAsterisk={false}
        autoFocus
        maxLength={32}
        value={tenant}
        error={brokenRule(attempt.error, "tenant_id")}
        onChange={(event) => setTenant(event.currentTarget.value)}
      />
      <Refused error={attempt.error} />
      <Button type="submit" loading={attempt.isPending} fullWidth>
        Continue
      </Button>
    </Page>
  );
}
