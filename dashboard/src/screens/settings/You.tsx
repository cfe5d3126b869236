import { PasswordInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Confirm } from "../../acts/Confirm";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { answer, api, brokenRule } from "../../api/client";
import { announceSignOut, useSession } from "../../api/session";
import { Head } from "../../frame/Head";
import { useLeave } from "../../frame/useLeave";
import { Ago } from "../../values/Ago";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { roles } from "./roles";
import styles from "./settings.module.css";

const needs = "session:own";

/** Shows the signed-in member, the form for the member's password, and the member's sessions. */
export function You() {
  const { tenant, member, expires_at: ends } = useSession();
  if (!member) return null;
  return (
    <>
      <Head part title="You" />
      <div className={styles.narrow}>
        <dl className={styles.facts}>
          <dt>Name</dt>
          <dd>{member.name || <span className="muted">none</span>}</dd>
          <dt>E-mail</dt>
          <dd>{member.email}</dd>
          <dt>Role</dt>
          <dd>
            {member.role} <span className="muted">of {tenant.name}: {roles[member.role]}</span>
          </dd>
          {ends && (
            <>
              <dt>This session ends</dt>
              <dd>
                <Ago at={ends} />
              </dd>
            </>
          )}
        </dl>
        <section aria-labelledby="password">
          <h2 id="password" className={styles.heading}>
            Password
          </h2>
          {member.has_password ? <Password /> : <p className="muted">You sign in through the tenant's issuer and have no password here.</p>}
        </section>
        <section aria-labelledby="everywhere">
          <h2 id="everywhere" className={styles.heading}>
            Sessions
          </h2>
          <Mine />
          <div className={styles.after}>
            <SignOutEverywhere />
          </div>
        </section>
      </div>
    </>
  );
}

/** Changes the user's password. */
function Password() {
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const [changed, setChanged] = useState(false);
  const change = useAct(() => answer(api.PUT("/v1/auth/password", { body: { current, new: next } })), {
    changes: [["audit-log"]],
    done() {
      setCurrent("");
      setNext("");
      setChanged(true);
    },
  });
  return (
    <Form act={change} needs={needs} submit="Change the password" onSubmit={() => change.mutate()}>
      <PasswordInput
        label="Current password"
        autoComplete="current-password"
        required
        withAsterisk={false}
        visibilityToggleButtonProps={{ "aria-label": "Show the current password", tabIndex: 0 }}
        value={current}
        error={brokenRule(change.error, "current")}
        onChange={(event) => {
          setCurrent(event.currentTarget.value);
          setChanged(false);
        }}
      />
      <PasswordInput
        label="New password"
        description="At least 12 characters. It replaces the current password in every tenant where you use it"
        autoComplete="new-password"
        required
        withAsterisk={false}
        visibilityToggleButtonProps={{ "aria-label": "Show the new password", tabIndex: 0 }}
        value={next}
        error={brokenRule(change.error, "new")}
        onChange={(event) => {
          setNext(event.currentTarget.value);
          setChanged(false);
        }}
      />
      <p role="status">{changed && "The password is changed. All your other sessions have ended."}</p>
    </Form>
  );
}

const columns = [{ title: "Signed in" }, { title: "Expires" }, { title: "Actions", unseen: true }];

/** Lists the user's sessions, so that the user can end a session that is open in another browser. */
function Mine() {
  const query = useQuery({ queryKey: ["sessions"], queryFn: ({ signal }) => answer(api.GET("/v1/auth/sessions", { signal })) });
  return (
    <List what="Your sessions" columns={columns} query={query} rows={1} empty={null}>
      {(one) => (
        <tr key={one.id}>
          <td className={cell.main}>
            <Ago at={one.created_at} />
          </td>
          <td>
            <Ago at={one.expires_at} />
          </td>
          <td className={cell.number}>{one.current ? <span className="muted">this one</span> : <EndSession session={one.id} />}</td>
        </tr>
      )}
    </List>
  );
}

/** Shows the button that ends one session. */
function EndSession({ session }: { session: string }) {
  const end = useAct<string>(() => answer(api.DELETE("/v1/auth/sessions/{id}", { params: { path: { id: session } } })), { changes: [["sessions"], ["audit-log"]] });
  return (
    <Confirm verb="End" thing="this session" needs={needs} act={end} danger>
      The browser that uses it is signed out.
    </Confirm>
  );
}

/** Shows the button that ends all sessions of the user, including this one. */
function SignOutEverywhere() {
  const leave = useLeave();
  const signOut = useAct<string>(() => answer(api.POST("/v1/auth/logout-all")), {
    changes: [],
    done() {
      announceSignOut();
      void leave();
    },
  });
  return (
    <Confirm verb="Sign out everywhere" needs={needs} act={signOut} danger>
      All your sessions in this tenant end, including this one.
    </Confirm>
  );
}
