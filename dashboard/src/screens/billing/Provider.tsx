import { NativeSelect, PasswordInput, Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Confirm } from "../../acts/Confirm";
import { Form } from "../../acts/Form";
import { NumberField } from "../../acts/NumberField";
import { Refused } from "../../acts/Refused";
import { Secret } from "../../acts/Secret";
import { useAct } from "../../acts/useAct";
import { useRule } from "../../acts/useRule";
import { Verb } from "../../acts/Verb";
import { answer, api, brokenRule, type Schema } from "../../api/client";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { wrongWhole } from "../../values/decimal";
import { Identifier } from "../../values/Identifier";
import { State } from "../../values/State";
import styles from "./billing.module.css";
import { mappingOf, writtenMapping, wrongMapping } from "./providerSettings";

type Saved = Schema<"Provider">;
type Settings = Schema<"SaveProvider">;

/** Shows the provider that bills the usage, and the settings that connect it. */
export function Provider() {
  const { data, error, refetch } = useQuery({
    queryKey: ["provider"],
    async queryFn({ signal }) {
      const { data: providers } = await answer(api.GET("/v1/billing/providers", { signal }));
      const connected = providers.some((one) => one.connected);
      return { providers, saved: connected ? await answer(api.GET("/v1/billing/provider", { signal })) : null };
    },
  });
  const [type, setType] = useState<Settings["type"] | undefined>();
  if (error && !data) return <Failed what="The provider" error={error} retry={() => void refetch()} />;
  if (!data) return <LoadingText />;
  const { saved, providers } = data;
  const chosen = type ?? saved?.type ?? "stripe";
  const same = saved?.type === chosen ? saved : null;
  const endpoint = providers.find((one) => one.type === chosen);
  return (
    <>
      {saved ? <Connected saved={saved} /> : <p className="muted">No provider is connected. Usage is counted, but not billed.</p>}
      <h2 className={styles.section}>{saved ? "Change it" : "Connect a provider"}</h2>
      <div className={styles.narrow}>
        <NativeSelect
          label="Provider"
          value={chosen}
          onChange={(event) => setType(event.currentTarget.value as Settings["type"])}
          data={[
            { value: "stripe", label: "Stripe" },
            { value: "webhook", label: "Webhook: your own URL" },
          ]}
        />
        {chosen === "stripe" ? <Stripe key="stripe" saved={same} endpoint={endpoint} /> : <Webhook key="webhook" saved={same} />}
      </div>
    </>
  );
}

/** Shows the connected provider, and the button that disconnects it. */
function Connected({ saved }: { saved: Saved }) {
  const remove = useAct((_: string) => answer(api.DELETE("/v1/billing/provider")), { changes: [["provider"]] });
  return (
    <>
      <dl className={styles.facts} data-provider={saved.type}>
        <dt>Provider</dt>
        <dd>
          {saved.type} {saved.livemode !== undefined && <State is={saved.livemode ? "good" : "waiting"}>{saved.livemode ? "live mode" : "test mode"}</State>}
        </dd>
        {saved.account && (
          <>
            <dt>Account</dt>
            <dd>
              <Identifier>{saved.account}</Identifier>
            </dd>
          </>
        )}
        {saved.url && (
          <>
            <dt>Statements are sent to</dt>
            <dd>
              <Identifier>{saved.url}</Identifier>
            </dd>
          </>
        )}
        <dt>Validated</dt>
        <dd>
          <Ago at={saved.validated_at} />, with the secret that ends in <span className="mono">{saved.secret_last_four}</span>
        </dd>
        {saved.bills && (
          <>
            <dt>Bills</dt>
            <dd>{saved.bills}</dd>
          </>
        )}
        {saved.webhook_secret_last_four && (
          <>
            <dt>Messages from Stripe</dt>
            <dd>
              signed with the secret that ends in <span className="mono">{saved.webhook_secret_last_four}</span>
            </dd>
          </>
        )}
      </dl>
      <Confirm verb="Disconnect" thing={saved.type} needs="billing:write" act={remove} danger>
        Usage is still counted, but no longer billed. Disconnecting is refused while a report is being sent, a closed period is not billed in full, or an invoice is held.
      </Confirm>
    </>
  );
}

/** Shows the endpoint to add in Stripe first, so that Stripe sends invoice, credit note and subscription events. */
function Endpoint({ endpoint }: { endpoint: Schema<"Connectable"> }) {
  return (
    <div className={styles.endpoint}>
      <p>In Stripe, under Developers, Webhooks, add an endpoint with this URL:</p>
      <Identifier>{endpoint.webhook_url ?? ""}</Identifier>
      <p>Select these events for it:</p>
      <p className="mono">{endpoint.webhook_events?.join(", ")}</p>
      <p>Stripe then shows the signing secret of the endpoint.</p>
    </div>
  );
}

/** Returns the action that saves the provider. made receives the new secret, if there is one. */
function useSave(made: (secret: string | undefined) => void) {
  return useAct((body: Settings) => answer(api.PUT("/v1/billing/provider", { body })), {
    changes: [["provider"]],
    done: (saved) => made(saved.secret),
  });
}

/** Edits the connection to Stripe. */
function Stripe({ saved, endpoint }: { saved: Saved | null; endpoint: Schema<"Connectable"> | undefined }) {
  const [secretKey, setSecretKey] = useState("");
  const [webhookSecret, setWebhookSecret] = useState("");
  const [bills, setBills] = useState(saved?.bills ?? "quantities");
  const [product, setProduct] = useState(saved?.product ?? "");
  const [collection, setCollection] = useState(saved?.collection_method ?? "charge_automatically");
  const [days, setDays] = useState(String(saved?.days_until_due ?? 30));
  const [mapping, setMapping] = useState(writtenMapping(saved?.mapping));
  const save = useSave(() => {
    setSecretKey("");
    setWebhookSecret("");
  });
  const mappingRule = useRule<HTMLTextAreaElement>(wrongMapping(mapping), brokenRule(save.error, "mapping"));
  const submit = () =>
    save.mutate({
      type: "stripe",
      bills,
      ...(secretKey && { secret_key: secretKey }),
      ...(webhookSecret && { webhook_secret: webhookSecret }),
      ...(bills === "amounts" && {
        ...(product && { product }),
        ...(saved?.products && { products: saved.products }),
        ...(saved?.tax_behavior && { tax_behavior: saved.tax_behavior }),
        ...(saved?.tax_code && { tax_code: saved.tax_code }),
        collection_method: collection,
        ...(collection === "send_invoice" && { days_until_due: Number(days) }),
      }),
      ...(bills === "quantities" && mapping.trim() !== "" && { mapping: mappingOf(mapping) }),
    });
  return (
    <Form act={save} needs="billing:write" submit={saved ? "Save Stripe" : "Connect Stripe"} onSubmit={submit}>
      <PasswordInput
        label="Secret key"
        description={saved ? `Leave empty to keep the secret that ends in ${saved.secret_last_four}` : "A secret or restricted API key of the account. Odometer checks it before saving"}
        required={!saved}
        withAsterisk={false}
        autoComplete="off"
        visibilityToggleButtonProps={{ "aria-label": "Show the secret key", tabIndex: 0 }}
        value={secretKey}
        error={brokenRule(save.error, "secret_key")}
        onChange={(event) => setSecretKey(event.currentTarget.value)}
      />
      {endpoint && <Endpoint endpoint={endpoint} />}
      <PasswordInput
        label="Signing secret of the endpoint"
        description={
          saved?.webhook_secret_last_four
            ? `Leave empty to keep the secret that ends in ${saved.webhook_secret_last_four}`
            : "Begins with whsec_"
        }
        required={!saved}
        withAsterisk={false}
        autoComplete="off"
        visibilityToggleButtonProps={{ "aria-label": "Show the signing secret", tabIndex: 0 }}
        value={webhookSecret}
        error={brokenRule(save.error, "webhook_secret")}
        onChange={(event) => setWebhookSecret(event.currentTarget.value)}
      />
      <NativeSelect
        label="Bills"
        value={bills}
        error={brokenRule(save.error, "bills")}
        onChange={(event) => setBills(event.currentTarget.value as typeof bills)}
        data={[
          { value: "quantities", label: "Quantities: Stripe charges them at its metered prices" },
          { value: "amounts", label: "Amounts: Odometer charges them at its own prices" },
        ]}
      />
      {bills === "quantities" ? (
        <Textarea
          label="Prices of meters"
          description="One line for each meter that is not the lookup key of its price: the meter's slug, a space, the price's id"
          placeholder="api-calls price_1PQ2…"
          autosize
          minRows={2}
          {...mappingRule}
          value={mapping}
          onChange={(event) => setMapping(event.currentTarget.value)}
        />
      ) : (
        <>
          <TextInput
            label="Product"
            description="The product of the invoice lines"
            value={product}
            error={brokenRule(save.error, "product")}
            onChange={(event) => setProduct(event.currentTarget.value)}
          />
          <NativeSelect
            label="Invoices of customers without a subscription"
            value={collection}
            error={brokenRule(save.error, "collection_method")}
            onChange={(event) => setCollection(event.currentTarget.value as typeof collection)}
            data={[
              { value: "charge_automatically", label: "Charged to the customer's payment method" },
              { value: "send_invoice", label: "Sent to the customer, due after a number of days" },
            ]}
          />
          {collection === "send_invoice" && (
            <NumberField label="Days until due" description="1 to 365" inputMode="numeric" value={days} wrong={wrongWhole} error={brokenRule(save.error, "days_until_due")} change={setDays} />
          )}
        </>
      )}
    </Form>
  );
}

/** Edits the connection to a provider that receives statements by webhook. */
function Webhook({ saved }: { saved: Saved | null }) {
  const [url, setURL] = useState(saved?.url ?? "");
  const [secret, setSecret] = useState("");
  const [shown, setShown] = useState<string | undefined>();
  const save = useSave((made) => {
    setSecret("");
    setShown(made);
  });
  const make = useAct(() => answer(api.POST("/v1/billing/providers/{type}/secret", { params: { path: { type: "webhook" } } })), {
    changes: [],
    done: (made) => {
      setSecret(made.secret);
      setShown(made.secret);
    },
  });
  const submit = () => save.mutate({ type: "webhook", url, ...(secret && { secret }) });
  return (
    <Form act={save} needs="billing:write" submit={saved ? "Save the webhook" : "Connect the webhook"} onSubmit={submit}>
      <TextInput
        label="URL"
        description="Receives signed statements (Standard Webhooks). Odometer first sends a signed ping, which must be answered with a 2xx status"
        type="url"
        required
        withAsterisk={false}
        placeholder="https://billing.example.com/usage"
        value={url}
        error={brokenRule(save.error, "url")}
        onChange={(event) => setURL(event.currentTarget.value)}
      />
      <PasswordInput
        label="Signing secret"
        description={saved ? `Leave empty to keep the secret that ends in ${saved.secret_last_four}` : "The receiver needs the secret before the ping. Create a secret here, configure it in the receiver, then connect"}
        autoComplete="off"
        visibilityToggleButtonProps={{ "aria-label": "Show the signing secret", tabIndex: 0 }}
        value={secret}
        error={brokenRule(save.error, "secret")}
        onChange={(event) => setSecret(event.currentTarget.value)}
      />
      <div>
        <Verb needs="billing:write" variant="default" size="xs" loading={make.isPending} onClick={() => make.mutate()}>
          Create a secret
        </Verb>
      </div>
      <Refused error={make.error} />
      <Secret title="The signing secret" secret={shown} leave={() => setShown(undefined)} />
    </Form>
  );
}
