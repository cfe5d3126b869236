import { NativeSelect } from "@mantine/core";
import { queryOptions, useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { Confirm } from "../../acts/Confirm";
import { Dialog } from "../../acts/Dialog";
import { Refused } from "../../acts/Refused";
import { Secret } from "../../acts/Secret";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { answer, api, brokenRule, Failure, type Schema } from "../../api/client";
import { Head } from "../../frame/Head";
import { Where } from "../../frame/Where";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { Instant } from "../../values/Instant";
import { Deliveries } from "./Deliveries";
import { overlaps } from "./lifetimes";
import styles from "./Webhook.module.css";
import { WebhookForm } from "./WebhookForm";
import { WebhookState } from "./WebhookState";

const needs = "webhooks:write";

/** Queries a webhook by its id. */
const webhook = (id: string) =>
  queryOptions({
    queryKey: ["webhook", id],
    queryFn: ({ signal }) => answer(api.GET("/v1/webhooks/{id}", { params: { path: { id } }, signal })),
  });

/** Shows a webhook, its actions and its deliveries. */
export function Webhook() {
  return (
    <Allowed to="webhooks:read">
      <Found />
    </Allowed>
  );
}

/** Shows the webhook, or that it does not exist. */
function Found() {
  const { webhook: id } = useParams({ from: "/frame/developers/webhooks/$webhook" });
  const { data, error, refetch } = useQuery(webhook(id));
  if (error instanceof Failure && (error.status === 404 || error.status === 422)) {
    return (
      <Empty title={`There is no webhook ${id}`}>
        <Link to="/developers/webhooks">All webhooks</Link>
      </Empty>
    );
  }
  if (error && !data) return <Failed what="The webhook" error={error} retry={() => void refetch()} />;
  return (
    <>
      <Where parts={[<Link to="/developers/webhooks">Webhooks</Link>]} here={id} />
      {data ? <Facts webhook={data} /> : <LoadingText />}
      <Deliveries webhook={id} />
    </>
  );
}

/** Shows the state, the message types and the secret of the webhook. */
function Facts({ webhook }: { webhook: Schema<"Webhook"> }) {
  const about: [string, React.ReactNode][] = [
    ["State", <WebhookState of={webhook} />],
    ["Messages", webhook.event_types.join(", ")],
    ["Secret", <SecretText webhook={webhook} />],
    ["Since", <Instant at={webhook.created_at} />],
  ];
  if (webhook.failing_since) about.splice(1, 0, ["Failing since", <Instant at={webhook.failing_since} />]);
  if (webhook.disabled_at) about.splice(1, 0, ["Disabled since", <Instant at={webhook.disabled_at} />]);
  return (
    <>
      <Head part title={webhook.description || webhook.url}>
        {webhook.description && webhook.url}
      </Head>
      <dl className={styles.about}>
        {about.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <div className={styles.acts}>
        <Test webhook={webhook} />
        <Edit webhook={webhook} />
        <Rotate webhook={webhook} />
        <Enabled webhook={webhook} />
        <Delete webhook={webhook} />
      </div>
    </>
  );
}

/** Shows the last characters of the secret, and until when the previous one is valid. */
function SecretText({ webhook: { secret_last_four, former_secret_until } }: { webhook: Schema<"Webhook"> }) {
  return (
    <>
      <span className="mono">…{secret_last_four}</span>
      {former_secret_until && (
        <span className="muted">
          , and the previous secret, which expires <Ago at={former_secret_until} />
        </span>
      )}
    </>
  );
}

interface Props {
  webhook: Schema<"Webhook">;
}

/** Shows the button that sends a test message. */
function Test({ webhook: { id, enabled } }: Props) {
  const test = useAct(() => answer(api.POST("/v1/webhooks/{id}/test", { params: { path: { id } } })), { changes: [["deliveries", id]] });
  return (
    <>
      <Verb needs={needs} not={enabled ? undefined : "The webhook is disabled"} size="xs" loading={test.isPending} onClick={() => test.mutate()}>
        Send a test message
      </Verb>
      <Refused error={test.error} />
    </>
  );
}

/** Shows the button and the dialog that edit the webhook. */
function Edit({ webhook }: Props) {
  const [opened, setOpened] = useState(false);
  const { id } = webhook;
  const edit = useAct((body: Schema<"CreateWebhook">) => answer(api.PATCH("/v1/webhooks/{id}", { params: { path: { id } }, body })), {
    changes: [["webhooks"], ["webhook", id], ["deliveries", id]],
  });
  const leave = () => {
    setOpened(false);
    edit.reset();
  };
  return (
    <>
      <Verb needs={needs} size="xs" onClick={() => setOpened(true)}>
        Edit
      </Verb>
      <Dialog title={`Edit webhook ${id}`} opened={opened} leave={leave}>
        <WebhookForm webhook={webhook} act={edit} submit="Save the webhook" leave={leave} onSubmit={(body) => edit.mutate(body, { onSuccess: leave })} />
      </Dialog>
    </>
  );
}

/** Shows the button that replaces the secret. The old one stays valid for a chosen time. */
function Rotate({ webhook: { id, secret_last_four } }: Props) {
  const [overlap, setOverlap] = useState("86400");
  const [secret, setSecret] = useState<string>();
  const rotate = useAct<string, Schema<"CreatedWebhook">>(
    () => answer(api.POST("/v1/webhooks/{id}/rotate-secret", { params: { path: { id } }, body: { overlap_seconds: Number(overlap) } })),
    { changes: [["webhooks"], ["webhook", id]], done: (made) => setSecret(made.secret) },
  );
  return (
    <>
      <Confirm verb="Rotate" thing={`secret …${secret_last_four}`} needs={needs} act={rotate}>
        <div className={styles.parts}>
          <p>A new secret is created and shown. Until the old one expires, messages are signed with both.</p>
          <NativeSelect label="The old one expires" value={overlap} error={brokenRule(rotate.error, "overlap_seconds")} onChange={(event) => setOverlap(event.currentTarget.value)} data={overlaps} />
        </div>
      </Confirm>
      <Secret title="The webhook's signing secret" secret={secret} leave={() => setSecret(undefined)} />
    </>
  );
}

/** Shows the button that disables the webhook or, if the webhook is disabled, enables it. */
function Enabled({ webhook: { id, enabled } }: Props) {
  const path = { params: { path: { id } } };
  const changes = [["webhooks"], ["webhook", id], ["deliveries", id]];
  const disable = useAct<string>(() => answer(api.PATCH("/v1/webhooks/{id}", { ...path, body: { enabled: false } })), { changes });
  const enable = useAct(() => answer(api.PATCH("/v1/webhooks/{id}", { ...path, body: { enabled: true } })), { changes });
  if (enabled) {
    return (
      <Confirm verb="Disable" thing={`webhook ${id}`} needs={needs} act={disable} danger>
        <p>Waiting messages are not delivered, and no messages are stored for the webhook until it is enabled.</p>
      </Confirm>
    );
  }
  return (
    <>
      <Verb needs={needs} size="xs" loading={enable.isPending} onClick={() => enable.mutate()}>
        Enable
      </Verb>
      <Refused error={enable.error} />
    </>
  );
}

/** Shows the button that deletes the webhook and its delivery history. */
function Delete({ webhook: { id, url } }: Props) {
  const remove = useAct<string>(() => answer(api.DELETE("/v1/webhooks/{id}", { params: { path: { id } } })), {
    changes: [["webhooks"]],
    leads: () => ({ to: "/developers/webhooks" }),
  });
  return (
    <Confirm verb="Delete" thing={`webhook ${id}`} needs={needs} act={remove} danger>
      <p>No more messages are sent to {url}, and its delivery history is deleted.</p>
    </Confirm>
  );
}
