import { Button, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Refused } from "../../acts/Refused";
import { answer, api, brokenRule } from "../../api/client";
import { Page } from "./Page";

/** Requests a link with which the member can choose a new password. */
export function Forgotten() {
  const [email, setEmail] = useState("");
  const ask = useMutation({ mutationFn: () => answer(api.POST("/v1/password-resets", { body: { email } })) });
  const back = <Link to="/sign-in">Sign in</Link>;
  if (ask.isSuccess) {
    return (
      <Page title="Link requested" ways={back}>
        <p role="status">If {email} belongs to a member, the owner of the tenant is notified and can send a link. This page does not show whether it does.</p>
      </Page>
    );
  }
  return (
    <Page title="Reset the password" ways={back} onSubmit={() => ask.mutate()}>
      <p>The owner of your tenant can send you a link to choose a new password. If you are the owner, use an admin key to make another member the owner. The new owner can then send you a link.</p>
      <TextInput
        label="E-mail"
        type="email"
        autoComplete="username"
        required
        withAsterisk={false}
        autoFocus
        maxLength={254}
        value={email}
        error={brokenRule(ask.error, "email")}
        onChange={(event) => setEmail(event.currentTarget.value)}
      />
      <Refused error={ask.error} />
      <Button type="submit" loading={ask.isPending} fullWidth>
        Request a link
      </Button>
    </Page>
  );
}
