import { PasswordInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Confirm } from "../../acts/Confirm";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { useEdits } from "../../acts/useEdits";
import { answer, api, brokenRule, type Schema } from "../../api/client";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { Identifier } from "../../values/Identifier";
import { State } from "../../values/State";
import styles from "./settings.module.css";

const needs = "tenant:manage";
const changes = [["oidc"], ["audit-log"]];

type Settings = Schema<"OidcSettings">;

/** Shows the tenant's own OIDC issuer, at which its members sign in. */
export function SingleSignOn() {
  return (
    <>
      <Head part title="Single sign-on">
        Members sign in through your OpenID Connect issuer, in addition to a password or instead of it.
      </Head>
      <Allowed to={needs}>
        <SavedSettings />
      </Allowed>
    </>
  );
}

/** Shows the saved settings, and the forms that change them. */
function SavedSettings() {
  const { data, error, refetch } = useQuery({ queryKey: ["oidc"], queryFn: ({ signal }) => answer(api.GET("/v1/tenant/oidc", { signal })) });
  if (error && !data) return <Failed what="Single sign-on" error={error} retry={() => void refetch()} />;
  if (!data) return <LoadingText />;
  return (
    <>
      <dl className={styles.facts}>
        <dt>State</dt>
        <dd>{data.configured ? <State is="good">on</State> : <State is="off">off</State>}</dd>
        <dt>Redirect URI</dt>
        <dd>
          <Identifier>{data.redirect_uri}</Identifier>
          <p className="muted small">Register it for the client at the issuer</p>
        </dd>
        <dt>Sign-in URL</dt>
        <dd>
          <Identifier>{data.login_url}</Identifier>
          <p className="muted small">For members who have accepted an invitation with their account at the issuer. An account with the same e-mail is not enough</p>
        </dd>
        {data.updated_at && (
          <>
            <dt>Saved</dt>
            <dd>
              <Ago at={data.updated_at} />, {data.has_client_secret ? "with a client secret" : "as a public client, without a secret"}
            </dd>
          </>
        )}
      </dl>
      <div className={styles.narrow}>
        <Save saved={data} />
        {data.configured && (
          <div className={styles.verbs}>
            <Delete saved={data} />
          </div>
        )}
      </div>
    </>
  );
}

/** Edits the issuer and its client. */
function Save({ saved }: { saved: Settings }) {
  const { typed, change, save } = useEdits(
    { issuer: saved.issuer, client_id: saved.client_id, client_secret: "" },
    ({ client_secret, ...body }) => answer(api.PUT("/v1/tenant/oidc", { body: { ...body, ...(client_secret && { client_secret }) } })),
    { changes },
  );
  return (
    <Form act={save} needs={needs} submit="Save the issuer" onSubmit={() => save.mutate()}>
      <TextInput
        label="Issuer"
        description="Exactly as in the issuer's discovery document. Odometer checks it before saving"
        type="url"
        required
        withAsterisk={false}
        maxLength={2048}
        value={typed.issuer}
        error={brokenRule(save.error, "issuer")}
        onChange={(event) => change({ issuer: event.currentTarget.value })}
      />
      <TextInput
        label="Client ID"
        required
        withAsterisk={false}
        maxLength={255}
        value={typed.client_id}
        error={brokenRule(save.error, "client_id")}
        onChange={(event) => change({ client_id: event.currentTarget.value })}
      />
      <PasswordInput
        label="Client secret"
        description={`Leave empty for a public client${saved.has_client_secret ? ": the saved secret is then deleted" : ""}`}
        autoComplete="off"
        maxLength={1024}
        visibilityToggleButtonProps={{ "aria-label": "Show the client secret", tabIndex: 0 }}
        value={typed.client_secret}
        error={brokenRule(save.error, "client_secret")}
        onChange={(event) => change({ client_secret: event.currentTarget.value })}
      />
    </Form>
  );
}

/** Shows the button that deletes the issuer. */
function Delete({ saved }: { saved: Settings }) {
  const remove = useAct<string>(() => answer(api.DELETE("/v1/tenant/oidc")), { changes });
  return (
    <Confirm verb="Delete the issuer" needs={needs} act={remove} danger>
      Members can no longer sign in at {saved.issuer}. A member without a password needs a link to set one, which you create under Members. Sessions stay valid.
    </Confirm>
  );
}
