import { Button, PasswordInput, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import acts from "../../acts/acts.module.css";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { brokenRule, type Schema } from "../../api/client";
import { forgetSession, signIn } from "../../api/session";
import { Page } from "./Page";
import { TenantChoice } from "./TenantChoice";

/** Signs a user in by e-mail and password, and by tenant if the user is a member of several tenants. */
export function SignIn() {
  const { to, problem } = useSearch({ from: "/sign-in" });
  const queries = useQueryClient();
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const [tenants, setTenants] = useState<Schema<"SessionTenant">[]>([]);

  const attempt = useAct((tenant: string | undefined) => signIn(email, password, tenant), {
    changes: [],
    done(choice) {
      if (choice.length > 0) setTenants(choice);
      else forgetSession(queries);
    },
    // Leads only to a path of this origin, because a link to this page may name any address.
    leads: (choice) => (choice.length > 0 ? undefined : { href: to?.startsWith("/") && !to.startsWith("//") ? to : "/" }),
  });

  if (tenants.length > 0) {
    return (
      <Page title="Choose a tenant">
        <TenantChoice tenants={tenants} busy={attempt.isPending} choose={(id) => attempt.mutate(id)} />
        <Refused error={attempt.error} />
        <Button variant="subtle" onClick={() => setTenants([])}>
          Sign in as another member
        </Button>
      </Page>
    );
  }
  const ways = (
    <>
      <Link to="/sign-in/issuer">Sign in through your company's issuer</Link>
      <Link to="/sign-in/forgotten">Forgot your password?</Link>
    </>
  );
  return (
    <Page title="Sign in" ways={ways} onSubmit={() => attempt.mutate(undefined)}>
      {problem === "over" && attempt.isIdle && (
        <p className={acts.refused} role="alert">
          The sign-in through your company's issuer has expired, or it started in another browser. Start again.
        </p>
      )}
      <TextInput
        label="E-mail"
        type="email"
        name="email"
        autoComplete="username"
        required
        withAsterisk={false}
        autoFocus
        value={email}
        error={brokenRule(attempt.error, "email")}
        onChange={(event) => setEmail(event.currentTarget.value)}
      />
      <PasswordInput
        label="Password"
        name="password"
        autoComplete="current-password"
        required
        withAsterisk={false}
        visibilityToggleButtonProps={{ "aria-label": "Show the password", tabIndex: 0 }}
        value={password}
        error={brokenRule(attempt.error, "password")}
        onChange={(event) => setPassword(event.currentTarget.value)}
      />
      <Refused error={attempt.error} />
      <Button type="submit" loading={attempt.isPending} fullWidth>
        Sign in
      </Button>
    </Page>
  );
}
