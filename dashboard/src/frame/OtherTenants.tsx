import { Button, PasswordInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useLocation, useNavigate } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import acts from "../acts/acts.module.css";
import { Dialog } from "../acts/Dialog";
import { Refused } from "../acts/Refused";
import type { Schema } from "../api/client";
import { session, signIn, useSession } from "../api/session";
import { TenantChoice } from "../screens/sign-in/TenantChoice";
import { screens } from "./screens";

/** Signs the member in to another tenant with the same password, and opens the same section of the dashboard there. */
export function OtherTenants({ opened, leave }: { opened: boolean; leave: () => void }) {
  return (
    <Dialog title="Another tenant" opened={opened} leave={leave}>
      <Choice leave={leave} />
    </Dialog>
  );
}

/** Asks for the password, then shows the other tenants that accept it. */
function Choice({ leave }: { leave: () => void }) {
  const { tenant, member } = useSession();
  const enter = useEnter();
  const [password, setPassword] = useState("");
  const [tenants, setTenants] = useState<Schema<"SessionTenant">[]>();
  const attempt = useMutation({
    async mutationFn(chosen?: string) {
      const choice = await signIn(member?.email ?? "", password, chosen);
      if (chosen === undefined) setTenants(choice.filter(({ id }) => id !== tenant.id));
      if (choice.length > 0) return;
      await enter(); // if there is only one tenant, the sign-in began another session there
      if (chosen !== undefined) leave();
    },
  });
  const sent = (event: FormEvent) => {
    event.preventDefault();
    if (!attempt.isPending) attempt.mutate(undefined);
  };
  if (tenants?.length === 0) return <p role="status">No other tenant accepts this password for {member?.email}.</p>;
  if (tenants) {
    return (
      <>
        <TenantChoice tenants={tenants} busy={attempt.isPending} choose={(id) => attempt.mutate(id)} />
        <Refused error={attempt.error} />
      </>
    );
  }
  return (
    <form className={acts.form} onSubmit={sent}>
      <PasswordInput
        label="Your password"
        description={`The password of ${member?.email}. To switch to a tenant where you have another password, sign in there`}
        autoComplete="current-password"
        required
        withAsterisk={false}
        data-autofocus
        visibilityToggleButtonProps={{ "aria-label": "Show the password", tabIndex: 0 }}
        value={password}
        onChange={(event) => setPassword(event.currentTarget.value)}
      />
      <Refused error={attempt.error} />
      <div className={acts.buttons}>
        <Button type="submit" size="sm" loading={attempt.isPending}>
          Show my tenants
        </Button>
      </div>
    </form>
  );
}

/** Returns a function that shows the current section of the dashboard in the tenant of the new session. */
function useEnter(): () => Promise<void> {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const { pathname } = useLocation();
  return async () => {
    await queries.cancelQueries();
    await queries.fetchQuery({ ...session, staleTime: 0 });
    const subject = screens.find(([to]) => pathname.startsWith(to));
    await navigate({ to: subject?.[0] ?? "/overview", ignoreBlocker: true });
    await queries.resetQueries({ predicate: ({ queryKey: [what] }) => what !== "session" });
  };
}
