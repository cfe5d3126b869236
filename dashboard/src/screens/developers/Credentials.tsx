import { NativeSelect, TextInput } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { Confirm } from "../../acts/Confirm";
import { Dialog } from "../../acts/Dialog";
import { Form } from "../../acts/Form";
import { Secret } from "../../acts/Secret";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { brokenRule, type Schema } from "../../api/client";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Actor } from "../../values/Actor";
import { Ago } from "../../values/Ago";
import { Instant } from "../../values/Instant";
import { List } from "../../values/List";
import { State } from "../../values/State";
import { cell } from "../../values/Table";
import styles from "./Credentials.module.css";
import { ended, expiry, lengths, overlaps, stateOf } from "./lifetimes";

const needs = "api_keys:manage";

/** An API key or an HMAC secret. Fields of only one of the two are optional. */
export type Credential = Omit<Schema<"APIKeyMetadata">, "prefix"> & Partial<Pick<Schema<"APIKeyMetadata">, "prefix"> & Pick<Schema<"HMACSecret">, "signatures">>;

export interface Kind {
  name: string;
  thing: "key" | "secret";
  sentence: string;
  queryKey: [string];
  /** Whether programs sign requests with the credential. Such a credential accepts v2 signatures, or v1 and v2 ones. */
  signs?: boolean;
  list: (page: string | undefined, signal: AbortSignal) => Promise<{ data: Credential[]; next_page_token: string | null }>;
  /** Creates a credential and returns its secret value, which is shown once. rotate returns the new value. */
  create: (body: Schema<"CreateHMACSecret">) => Promise<string>;
  rotate: (id: string, overlapSeconds: number) => Promise<string>;
  revoke: (id: string) => Promise<unknown>;
}

/** Shows the credentials of one kind: API keys or HMAC secrets. */
export function Credentials({ of }: { of: Kind }) {
  const [made, setMade] = useState<string>();
  return (
    <>
      <Head part title={of.name} action={<Create of={of} done={setMade} />}>
        {of.sentence}
      </Head>
      <Allowed to={needs}>
        <CredentialTable of={of} done={setMade} />
      </Allowed>
      <Secret title={`The new ${of.thing}`} secret={made} leave={() => setMade(undefined)} />
    </>
  );
}

interface Parts {
  of: Kind;
  /** The callback that shows the secret value of a new credential. */
  done: (secret: string) => void;
}

/** Lists the credentials. Revoked and expired ones are shown when the user asks for them. */
function CredentialTable({ of, done }: Parts) {
  const { ended: shown, page } = useSearch({ strict: false });
  const query = useQuery({ queryKey: [...of.queryKey, page], queryFn: ({ signal }) => of.list(page, signal), placeholderData: keepPreviousData });
  const now = new Date();
  const over = query.data?.data.filter((credential) => ended(credential, now)).length ?? 0;
  const columns = [
    { title: "Name" },
    { title: "Scope" },
    ...(of.signs ? [{ title: "Signatures" }] : []),
    { title: "Created" },
    { title: "Last used" },
    { title: "Expires" },
    { title: "State" },
    { title: "Actions", unseen: true },
  ];
  return (
    <>
      <List what={`The ${of.name}`} columns={columns} query={query} page={page} rows={3} empty={<None of={of} />}>
        {(credential) => (shown || !ended(credential, now)) && <Row key={credential.id} of={of} done={done} credential={credential} now={now} />}
      </List>
      {over > 0 && (
        <p className={styles.over}>
          <Link to="." search={({ ended: _, ...search }) => (shown ? search : { ...search, ended: "shown" })}>
            {shown ? "Hide revoked and expired" : `Show ${over} revoked or expired`}
          </Link>
        </p>
      )}
    </>
  );
}

function None({ of }: { of: Kind }) {
  return (
    <Empty title={`No ${of.name} yet`}>
      <p>Create one for each program, so that you can revoke each separately.</p>
    </Empty>
  );
}

/** The permissions of each scope, in words. */
const scopes: Record<Schema<"CreateAPIKey">["scope"], string> = {
  ingest_only: "sends events",
  read_only: "reads meters, customers and usage",
  read_write: "sends events, changes meters and customers",
  admin: "everything",
};

/** Shows a credential. A credential that is neither revoked nor expired has buttons. */
function Row({ of, done, credential, now }: Parts & { credential: Credential; now: Date }) {
  const [is, word] = stateOf(credential, now);
  const over = ended(credential, now);
  return (
    <tr>
      <td className={cell.main}>
        {credential.name}
        <p className={styles.under}>
          {credential.prefix}…{credential.last_four}
        </p>
      </td>
      <td data-title="Scope">
        {credential.scope}
        <p className="muted small">{scopes[credential.scope]}</p>
      </td>
      {of.signs && <td data-title="Signatures">{credential.signatures === "v2" ? "v2" : "v1 and v2"}</td>}
      <td data-title="Created">
        <Ago at={credential.created_at} />
        <p className="muted small">
          by <Actor is={credential.created_by} />
          {credential.handed_to && (
            <>
              , now of <Actor is={credential.handed_to} />
            </>
          )}
        </p>
      </td>
      <td data-title="Last used">
        {credential.last_used_at ? <Ago at={credential.last_used_at} /> : <span className="muted">never</span>}
        {credential.old_last_used_at && (
          <p className="muted small">
            the old one <Ago at={credential.old_last_used_at} />
          </p>
        )}
      </td>
      <td data-title="Expires">{credential.expires_at ? <Instant at={credential.expires_at} /> : <span className="muted">never</span>}</td>
      <td>
        <State is={is}>{word}</State>
      </td>
      <td className={cell.number}>
        {!over && (
          <div className={styles.verbs}>
            <Rotate of={of} done={done} credential={credential} />
            <Revoke of={of} credential={credential} />
          </div>
        )}
      </td>
    </tr>
  );
}

/** Shows the button and the dialog that create a credential. */
function Create({ of, done }: Parts) {
  const [opened, setOpened] = useState(false);
  const [name, setName] = useState("");
  const [scope, setScope] = useState<Schema<"CreateAPIKey">["scope"]>("ingest_only");
  const [signatures, setSignatures] = useState<"v2" | "v1_and_v2">("v2");
  const [days, setDays] = useState("");
  const create = useAct(() => of.create({ name, scope, signatures, ...expiry(days, new Date()) }), {
    changes: [of.queryKey],
    done(made) {
      leave(); // the secret replaces the form
      done(made);
    },
  });
  const leave = () => {
    setOpened(false);
    setName("");
    create.reset();
  };
  const what = `Create ${of.thing === "key" ? "an API key" : "an HMAC secret"}`;
  return (
    <>
      <Verb needs={needs} variant="filled" onClick={() => setOpened(true)}>
        {what}
      </Verb>
      <Dialog title={what} opened={opened} leave={leave}>
        <Form act={create} needs={needs} submit={`Create the ${of.thing}`} leave={leave} onSubmit={() => create.mutate()}>
          <TextInput
            label="Name"
            description="Its purpose, such as the name of the program"
            required
            withAsterisk={false}
            maxLength={255}
            value={name}
            error={brokenRule(create.error, "name")}
            onChange={(event) => setName(event.currentTarget.value)}
            data-autofocus
          />
          <NativeSelect
            label="Scope"
            value={scope}
            error={brokenRule(create.error, "scope")}
            onChange={(event) => setScope(event.currentTarget.value as typeof scope)}
            data={Object.entries(scopes).map(([value, means]) => ({ value, label: `${value}: ${means}` }))}
          />
          {of.signs && (
            <NativeSelect
              label="Signatures"
              description="A v1 signature does not cover the URL of the request"
              value={signatures}
              error={brokenRule(create.error, "signatures")}
              onChange={(event) => setSignatures(event.currentTarget.value as typeof signatures)}
              data={[
                { value: "v2", label: "v2 only" },
                { value: "v1_and_v2", label: "v1 and v2" },
              ]}
            />
          )}
          <NativeSelect
            label="Expires"
            value={days}
            error={brokenRule(create.error, "expires_at")}
            onChange={(event) => setDays(event.currentTarget.value)}
            data={lengths}
          />
        </Form>
      </Dialog>
    </>
  );
}

/** Shows the button that replaces the credential. The old one stays valid for a chosen time. */
function Rotate({ of, done, credential }: Parts & { credential: Credential }) {
  const [overlap, setOverlap] = useState("86400");
  const rotate = useAct<string, string>(() => of.rotate(credential.id, Number(overlap)), { changes: [of.queryKey], done });
  return (
    <Confirm
      verb="Rotate"
      thing={`${of.thing} …${credential.last_four}`}
      needs={needs}
      not={credential.successor_id === null ? undefined : "It was already replaced"}
      act={rotate}
    >
      <div className={styles.parts}>
        <p>A new {of.thing} with the same name, scope and expiry is created and shown. After the old one expires, requests that use it get 401.</p>
        <NativeSelect label="The old one expires" value={overlap} error={brokenRule(rotate.error, "overlap_seconds")} onChange={(event) => setOverlap(event.currentTarget.value)} data={overlaps} />
      </div>
    </Confirm>
  );
}

/** Shows the button that revokes the credential. */
function Revoke({ of, credential }: { of: Kind; credential: Credential }) {
  const revoke = useAct<string>(() => of.revoke(credential.id), { changes: [of.queryKey] });
  return (
    <Confirm verb="Revoke" thing={`${of.thing} …${credential.last_four}`} needs={needs} act={revoke} danger>
      <p>
        Requests that use {credential.name} get 401 from now on. This cannot be undone.{" "}
        {credential.last_used_at ? (
          <>
            It was last used <Ago at={credential.last_used_at} />.
          </>
        ) : (
          "It was never used."
        )}
      </p>
    </Confirm>
  );
}
