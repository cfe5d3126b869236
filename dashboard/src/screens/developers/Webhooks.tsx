import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Dialog } from "../../acts/Dialog";
import { Secret } from "../../acts/Secret";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { answer, api, type Schema } from "../../api/client";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Instant } from "../../values/Instant";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import styles from "./Credentials.module.css";
import { WebhookForm } from "./WebhookForm";
import { WebhookState } from "./WebhookState";

const columns = [{ title: "URL" }, { title: "Messages" }, { title: "State" }, { title: "Since", number: true }];

/** Lists the tenant's webhooks. */
export function Webhooks() {
  return (
    <>
      <Head part title="Webhooks" action={<Create />}>
        Odometer sends a message to your URL when an event happens.
      </Head>
      <Allowed to="webhooks:read">
        <WebhookTable />
      </Allowed>
    </>
  );
}

/** Lists the webhooks. */
function WebhookTable() {
  const query = useQuery({ queryKey: ["webhooks"], queryFn: ({ signal }) => answer(api.GET("/v1/webhooks", { signal })) });
  return (
    <List what="The webhooks" columns={columns} query={query} rows={2} empty={<None />}>
      {(webhook) => (
        <tr key={webhook.id}>
          <td className={cell.main}>
            <Link to="/developers/webhooks/$webhook" params={{ webhook: webhook.id }}>
              {webhook.description || webhook.url}
            </Link>
            {webhook.description && <p className={styles.under}>{webhook.url}</p>}
          </td>
          <td className="muted">{webhook.event_types.join(", ")}</td>
          <td>
            <WebhookState of={webhook} />
          </td>
          <td className={cell.extra}>
            <Instant at={webhook.created_at} as="date" />
          </td>
        </tr>
      )}
    </List>
  );
}

function None() {
  return (
    <Empty title="No webhooks yet">
      <p>Create a webhook to receive, for example, a message when a sync fails.</p>
    </Empty>
  );
}

/** Shows the button and the dialog that create a webhook, and then its secret. */
function Create() {
  const [opened, setOpened] = useState(false);
  const [secret, setSecret] = useState<string>();
  const create = useAct((body: Schema<"CreateWebhook">) => answer(api.POST("/v1/webhooks", { body })), {
    changes: [["webhooks"]],
    done(made) {
      leave(); // the secret replaces the form
      setSecret(made.secret);
    },
  });
  const leave = () => {
    setOpened(false);
    create.reset();
  };
  return (
    <>
      <Verb needs="webhooks:write" variant="filled" onClick={() => setOpened(true)}>
        Create a webhook
      </Verb>
      <Dialog title="Create a webhook" opened={opened} leave={leave}>
        <WebhookForm act={create} submit="Create the webhook" leave={leave} onSubmit={(body) => create.mutate(body)} />
      </Dialog>
      <Secret title="The webhook's signing secret" secret={secret} leave={() => setSecret(undefined)}>
        The receiver needs it to verify the messages.
      </Secret>
    </>
  );
}
