import { Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { parse } from "lossless-json";
import { Confirm } from "../../acts/Confirm";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { useEdits } from "../../acts/useEdits";
import { answer, api, brokenRule, type Schema } from "../../api/client";
import { customer as read, customerParams } from "../../api/customers";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { objectText, parseObject } from "../../values/objects";
import { Workflows } from "../../values/Workflows";
import { CustomerPlan } from "./CustomerPlan";
import styles from "./CustomerDetails.module.css";

type Customer = Schema<"Customer">;

/** Shows a customer's data and plan, with the forms and actions that change them. */
export function CustomerDetails() {
  const params = useParams({ from: "/frame/customers/$customer/details" });
  const { data: customer } = useQuery(read(params.customer));
  const { data: metadata, error, refetch } = useQuery({
    queryKey: ["customer", params.customer, "metadata"],
    // Lossless parsing needs the response as text. Numbers in the tenant's metadata thus keep every digit.
    async queryFn({ signal }) {
      const text = await answer(api.GET("/v1/customers/by-id", { params: { query: { id: params.customer } }, parseAs: "text", signal }));
      return objectText((parse(text) as Pick<Customer, "metadata">).metadata);
    },
  });
  if (error && metadata === undefined) return <Failed what="The customer" error={error} retry={() => void refetch()} />;
  if (!customer || metadata === undefined) return <LoadingText />;
  return (
    <div className={styles.split}>
      <div>
        {customer.erased_at ? <p className="muted">The customer's personal data is erased. Only ids and numbers remain.</p> : <Edit key={customer.id} customer={customer} metadata={metadata} />}
        <CustomerPlan customer={customer.external_id} />
      </div>
      <div>
        <Facts customer={customer} />
        {!customer.erased_at && <Leaving customer={customer} />}
      </div>
    </div>
  );
}

/** Edits the customer's name, id at the provider and metadata. */
function Edit({ customer, metadata }: { customer: Customer; metadata: string }) {
  const saved = { name: customer.name, linked: customer.billing_provider_id ?? "", metadata };
  const changed = ({ name, linked, metadata: text }: typeof saved) => {
    const parsed = parseObject(text);
    return {
      ...(name !== saved.name && { name }),
      ...(linked !== saved.linked && { billing_provider_id: linked === "" ? null : linked }),
      ...("object" in parsed && objectText(parsed.object) !== metadata && { metadata: parsed.object }),
    };
  };
  const { typed, change, save } = useEdits(saved, (typed) => answer(api.PUT("/v1/customers/{external_id}/upsert", { params: customerParams(customer.external_id), body: changed(typed) })), {
    changes: [["customer"], ["customers"], ["preview", customer.external_id]],
  });
  const parsed = parseObject(typed.metadata);
  const wrong = "wrong" in parsed ? parsed.wrong : undefined;
  const not = wrong ?? (Object.keys(changed(typed)).length === 0 ? "Nothing was changed" : undefined);
  return (
    <Form act={save} needs="customers:write" submit="Save the customer" not={not} onSubmit={save.mutate}>
      <TextInput label="Name" value={typed.name} error={brokenRule(save.error, "name")} onChange={(event) => change({ name: event.currentTarget.value })} />
      <TextInput
        label="At the provider"
        description="The id of the customer at the provider, such as cus_NffrFeUfNV2Hib. Without it, a provider with invoices bills nothing."
        value={typed.linked}
        error={brokenRule(save.error, "billing_provider_id")}
        onChange={(event) => change({ linked: event.currentTarget.value.trim() })}
      />
      <Textarea
        label="Metadata"
        description="Any JSON object"
        autosize
        minRows={3}
        maxRows={16}
        classNames={{ input: "mono" }}
        value={typed.metadata}
        error={wrong ?? brokenRule(save.error, "metadata")}
        onChange={(event) => change({ metadata: event.currentTarget.value })}
      />
      {customer.price_comparison && <Differences of={customer.price_comparison} />}
    </Form>
  );
}

/** Lists the meters with a different price at the provider. The provider's price is billed. */
function Differences({ of: { differences, reason } }: { of: Schema<"PriceComparison"> }) {
  if (reason) return <p className="muted small">The prices were not compared with the provider's prices: {reason}</p>;
  if (differences.length === 0) return null;
  return (
    <div role="status" className={styles.differs}>
      <p>The provider bills these meters at other prices:</p>
      <ul>
        {differences.map((one) => (
          <li key={one.meter_id}>
            {one.meter_slug}: {one.our_price} in Odometer, {one.their_price} at the provider
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Shows the facts about the customer that cannot be edited. */
function Facts({ customer }: { customer: Customer }) {
  return (
    <dl className={styles.facts}>
      <dt>ID</dt>
      <dd>
        <Identifier>{customer.id}</Identifier> <Workflows of={customer.id} />
      </dd>
      <dt>External ID</dt>
      <dd>
        <Identifier>{customer.external_id}</Identifier>
      </dd>
      <dt>Created</dt>
      <dd>
        <Instant at={customer.created_at} />
      </dd>
      {customer.archived_at && (
        <>
          <dt>Archived</dt>
          <dd>
            <Instant at={customer.archived_at} />
          </dd>
        </>
      )}
      {customer.erased_at && (
        <>
          <dt>Erased</dt>
          <dd>
            <Instant at={customer.erased_at} />
          </dd>
        </>
      )}
    </dl>
  );
}

/** Archives or unarchives the customer, or erases its personal data. */
function Leaving({ customer: { external_id, archived_at } }: { customer: Customer }) {
  const path = { params: customerParams(external_id) };
  const changes = [["customer"], ["customers"]];
  const thing = `customer ${external_id}`;
  const archive = useAct<string>(() => answer(api.POST("/v1/customers/{external_id}/archive", path)), { changes });
  const unarchive = useAct<string>(() => answer(api.POST("/v1/customers/{external_id}/unarchive", path)), { changes });
  const erase = useAct((reason: string) => answer(api.POST("/v1/customers/{external_id}/erase", { ...path, body: { confirm: external_id, reason } })), {
    changes,
    leads: () => ({ to: "/customers" }),
  });
  return (
    <div className={styles.leaving}>
      {archived_at ? (
        <Confirm key="unarchive" verb="Unarchive" thing={thing} needs="customers:write" act={unarchive}>
          Lists show the customer again.
        </Confirm>
      ) : (
        <Confirm key="archive" verb="Archive" thing={thing} needs="customers:write" act={archive} danger>
          Lists no longer show the customer. Its usage is still counted and billed, and its next event unarchives it.
        </Confirm>
      )}
      <Confirm verb="Erase" thing={thing} needs="customers:erase" act={erase} asks="Reason, for the audit log" danger>
        The customer's external ID, name, metadata and event contents are deleted permanently. Totals, bills and reports stay. Later events with this external ID create another customer, unless the tenant is strict. Erasing is refused while the customer is paused or has unbilled usage.
      </Confirm>
    </div>
  );
}
