import { Button, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Refused } from "../../acts/Refused";
import { answer, api } from "../../api/client";
import { Page } from "./Page";

/** At the OIDC issuer of a tenant, of which one knows the id. */
export function AtIssuer() {
  const [tenant, setTenant] = useState("");
  const attempt = useMutation({
    async mutationFn() {
      const path = { tenant_id: tenant.trim() };
      // Asked first, so that it is said here why it can not be opened.
      await answer(api.GET("/v1/auth/oidc/{tenant_id}/login", { params: { path }, parseAs: "text" }));
      location.assign(`/v1/auth/oidc/${encodeURIComponent(path.tenant_id)}/login`);
    },
  });
  return (
    <Page title="Sign in at an issuer" ways={<Link to="/sign-in">Sign in with a password</Link>} onSubmit={() => attempt.mutate()}>
      <TextInput
        label="Tenant"
        description="Its id, as ten_42: whoever has invited you knows it"
        required
        withAsterisk={false}
        autoFocus
        maxLength={32}
        value={tenant}
        onChange={(event) => setTenant(event.currentTarget.value)}
      />
      <Refused error={attempt.error} />
      <Button type="submit" loading={attempt.isPending} fullWidth>
        Go on
      </Button>
    </Page>
  );
}
