import { Button, PasswordInput, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useLocation } from "@tanstack/react-router";
import { useState } from "react";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { answer, api, brokenRule, Failure, type Schema } from "../../api/client";
import { forgetSession } from "../../api/session";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Page } from "./Page";

/** Shows the invitation of a link. The token is after #, and leaves the browser only in request bodies. */
export function Invitation() {
  const token = useLocation({ select: ({ hash }) => hash });
  const { data, error, refetch } = useQuery({
    queryKey: ["invitation", token],
    queryFn: ({ signal }) => answer(api.POST("/v1/invitations/find", { body: { token }, signal })),
    enabled: token !== "",
    staleTime: Infinity,
  });
  if (token === "" || (error instanceof Failure && error.status === 404)) return <InvalidLink />;
  if (error) {
    return (
      <Page title="Invitation">
        <Failed what="The invitation" error={error} retry={() => void refetch()} />
      </Page>
    );
  }
  if (!data) {
    return (
      <Page title="Invitation">
        <LoadingText />
      </Page>
    );
  }
  return <Found key={token} token={token} invitation={data} />;
}

/** Explains that the link is not valid. */
function InvalidLink() {
  return (
    <Page title="This link is no longer valid" ways={<Link to="/sign-in">Sign in</Link>}>
      <p>It was accepted or revoked, it has expired, or it was not copied completely. The member who sent it can create another link.</p>
    </Page>
  );
}

interface Props {
  token: string;
  invitation: Schema<"FoundInvitation">;
}

/** Shows the invitation, and the ways to accept it. */
function Found({ token, invitation: { tenant_name: tenant, email, role, reset, issuer } }: Props) {
  const queries = useQueryClient();
  const [password, setPassword] = useState("");
  const accept = useAct(() => answer(api.POST("/v1/invitations/accept", { body: { token, password } })), {
    changes: [],
    done: () => forgetSession(queries), // removes the data of the previously signed-in member
    leads: () => ({ to: "/", replace: true }), // the history does not contain the link, which is no longer valid
  });
  return (
    <Page title={reset ? "Choose a new password" : `Join ${tenant}`} onSubmit={() => accept.mutate()}>
      <p>{reset ? `The password applies to ${tenant}. Your password in other tenants does not change.` : `You are invited as ${role}.`}</p>
      <TextInput label="E-mail" type="email" name="email" autoComplete="username" readOnly value={email} />
      <PasswordInput
        label="Password"
        name="password"
        description={reset ? "At least 12 characters" : "At least 12 characters. If you enter the password that you use in another tenant here, it applies to both"}
        autoComplete="new-password"
        required
        withAsterisk={false}
        autoFocus
        visibilityToggleButtonProps={{ "aria-label": "Show the password", tabIndex: 0 }}
        value={password}
        error={brokenRule(accept.error, "password")}
        onChange={(event) => setPassword(event.currentTarget.value)}
      />
      <Refused error={accept.error} />
      <Button type="submit" loading={accept.isPending} fullWidth>
        {reset ? "Save the password" : "Accept the invitation"}
      </Button>
      {issuer && <AtIssuer token={token} tenant={tenant} host={new URL(issuer).host} />}
    </Page>
  );
}

/** Shows the host of the issuer before the user goes there, because the tenant chooses its issuer. */
function AtIssuer({ token, tenant, host }: { token: string; tenant: string; host: string }) {
  const accept = useAct(() => answer(api.POST("/v1/invitations/accept-at-issuer", { body: { token } })), {
    changes: [],
    leads: ({ location: issuer }) => ({ href: issuer }),
  });
  return (
    <>
      <p className="muted">
        Or sign in without a password: {host}, the issuer of {tenant}, confirms your identity. Continue only if you know it.
      </p>
      <Refused error={accept.error} />
      <Button variant="default" loading={accept.isPending} fullWidth onClick={() => accept.mutate()}>
        Accept at {host}
      </Button>
    </>
  );
}
