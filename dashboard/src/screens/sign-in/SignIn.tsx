import { Button, PasswordInput, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRouter, useSearch } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import { Refused } from "../../acts/Refused";
import { type Schema } from "../../api/client";
import { forget, signIn } from "../../api/session";
import { useTitle } from "../../frame/useTitle";
import styles from "./SignIn.module.css";

/** By e-mail and password, and by tenant where somebody is a member of several. */
export function SignIn() {
  useTitle("Sign in");
  const { to } = useSearch({ from: "/sign-in" });
  const { history } = useRouter();
  const queries = useQueryClient();
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const [tenants, setTenants] = useState<Schema<"SessionTenant">[]>([]);

  const attempt = useMutation({
    mutationFn: (tenant?: string) => signIn(email, password, tenant),
    onSuccess(choice) {
      if (choice.length > 0) {
        setTenants(choice);
        return;
      }
      forget(queries);
      // Only a path of this origin: an address may have been made by somebody else.
      history.push(to?.startsWith("/") && !to.startsWith("//") ? to : "/");
    },
  });

  const submit = (event: FormEvent) => {
    event.preventDefault();
    attempt.mutate(undefined);
  };

  return (
    <main className={styles.page}>
      <p className={styles.name}>Odometer</p>
      {tenants.length > 0 ? (
        <section className={styles.form} aria-labelledby="title">
          <h1 id="title">Choose a tenant</h1>
          <ul className={styles.tenants}>
            {tenants.map((tenant) => (
              <li key={tenant.id}>
                <button type="button" className={styles.tenant} disabled={attempt.isPending} onClick={() => attempt.mutate(tenant.id)}>
                  <span>{tenant.name}</span>
                  <span className="muted small">
                    {tenant.currency} · {tenant.timezone}
                  </span>
                </button>
              </li>
            ))}
          </ul>
          <Refused error={attempt.error} />
          <Button variant="subtle" onClick={() => setTenants([])}>
            Sign in as somebody else
          </Button>
        </section>
      ) : (
        <form className={styles.form} onSubmit={submit}>
          <h1>Sign in</h1>
          <TextInput
            label="E-mail"
            type="email"
            name="email"
            autoComplete="username"
            required
            withAsterisk={false}
            autoFocus
            value={email}
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
            onChange={(event) => setPassword(event.currentTarget.value)}
          />
          <Refused error={attempt.error} />
          <Button type="submit" loading={attempt.isPending} fullWidth>
            Sign in
          </Button>
        </form>
      )}
    </main>
  );
}
