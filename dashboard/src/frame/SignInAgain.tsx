import { Button, Modal, PasswordInput } from "@mantine/core";
import { useWindowEvent } from "@mantine/hooks";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate, useRouter } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import acts from "../acts/acts.module.css";
import { Ask, dialogStyle } from "../acts/Dialog";
import { Refused } from "../acts/Refused";
import { lossOf, type Loss } from "../acts/unsaved";
import { useAct } from "../acts/useAct";
import { sessionEnded, sessionGoesOn, useSessionEnded } from "../api/ended";
import { forgetSession, session, signedOut, signIn, useSession, type Session } from "../api/session";
import { useLeave } from "./useLeave";

/** Covers the screens once their session has ended, until the same member has signed in again. Typed text stays. */
export function SignInAgain() {
  const ended = useSessionEnded();
  const leave = useLeave();
  // After a sign-out in another tab, this tab shows no figures either. It keeps typed text for the same member.
  useWindowEvent("storage", ({ key }) => {
    if (key === signedOut) void (lossOf() ? sessionEnded() : leave());
  });
  if (!ended) return null;
  return (
    <Modal
      {...dialogStyle}
      opened
      onClose={() => {}}
      title="Your session has ended"
      closeOnEscape={false}
      closeOnClickOutside={false}
      withCloseButton={false}
      zIndex={250} // above dialogs, below the question before a loss
      overlayProps={{ backgroundOpacity: 1, color: "var(--ground)" }} // no figures are shown without a session
    >
      <SignInForm />
    </Modal>
  );
}

/** Reports whether two sessions are of the same member in the same tenant. */
const isSame = (one: Session, other: Session) => one.tenant.id === other.tenant.id && one.member?.id === other.member?.id;

/** Asks the member to sign in again. Shows a link instead if another member has signed in. */
function SignInForm() {
  const before = useSession();
  const { tenant, member } = before;
  const queries = useQueryClient();
  const [password, setPassword] = useState("");
  const [other, setOther] = useState<Session>();
  const resume = async () => {
    const now = await queries.fetchQuery({ ...session, queryKey: ["session", "again"], staleTime: 0, retry: false });
    if (!isSame(before, now)) {
      setOther(now);
      return;
    }
    queries.setQueryData(session.queryKey, now);
    sessionGoesOn();
  };
  const attempt = useAct(
    async () => {
      await signIn(member?.email ?? "", password, tenant.id);
      await resume();
    },
    { changes: [] },
  );
  // The member may have signed in in another tab, for example at the issuer.
  useWindowEvent("focus", () => void resume().catch(() => {}));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!attempt.isPending) attempt.mutate();
  };
  if (other) {
    return (
      <p>
        In this browser {other.member?.email} has signed in to {other.tenant.name}. <a href="/">Continue as {other.member?.email}</a>
      </p>
    );
  }
  return (
    <form className={acts.form} onSubmit={submit}>
      <p>
        Sign in to {tenant.name} again as {member?.email} to return to this screen. Your entries are kept.
      </p>
      {member?.has_password ? (
        <PasswordInput
          label="Password"
          autoComplete="current-password"
          required
          withAsterisk={false}
          data-autofocus
          visibilityToggleButtonProps={{ "aria-label": "Show the password", tabIndex: 0 }}
          value={password}
          onChange={(event) => setPassword(event.currentTarget.value)}
        />
      ) : (
        <p>
          <a href={`/v1/auth/oidc/${encodeURIComponent(tenant.id)}/login`} target="_blank" rel="noreferrer" data-autofocus>
            Sign in through your company's issuer
          </a>{" "}
          in another tab, then come back to this one.
        </p>
      )}
      <Refused error={attempt.error} />
      <div className={acts.buttons}>
        <AnotherMember />
        {member?.has_password && (
          <Button type="submit" size="sm" loading={attempt.isPending}>
            Sign in
          </Button>
        )}
      </div>
    </form>
  );
}

/** Leads to the sign-in of any member. Asks first if unsaved data would be lost. */
function AnotherMember() {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const { latestLocation } = useRouter();
  const [loss, setLoss] = useState<Loss>();
  const leave = async () => {
    await navigate({ to: "/sign-in", search: { to: latestLocation.href }, ignoreBlocker: true });
    forgetSession(queries);
  };
  const press = () => {
    const found = lossOf();
    if (found) setLoss(found);
    else void leave();
  };
  return (
    <>
      <Button variant="default" size="sm" onClick={press}>
        Sign in as another member
      </Button>
      {loss && <Ask loss={loss} stay={() => setLoss(undefined)} leave={() => void leave()} />}
    </>
  );
}
