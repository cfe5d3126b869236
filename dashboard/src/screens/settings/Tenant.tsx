import { Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Form } from "../../acts/Form";
import { NumberField } from "../../acts/NumberField";
import { useEdits } from "../../acts/useEdits";
import { answer, api, brokenRule, type Schema } from "../../api/client";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Identifier } from "../../values/Identifier";
import { wrongWhole } from "../../values/decimal";
import { Instant } from "../../values/Instant";
import styles from "./settings.module.css";
import { changeOf, effects, typedOf } from "./tenantChanges";

/** Shows the tenant's settings for counting, billing and accepting events. */
export function Tenant() {
  return (
    <>
      <Head part title="Tenant">
        Settings for counting, billing and accepting events.
      </Head>
      <Allowed to="tenant:manage">
        <SavedSettings />
      </Allowed>
    </>
  );
}

const query = { queryKey: ["tenant"], queryFn: ({ signal }: { signal: AbortSignal }) => answer(api.GET("/v1/tenant", { signal })) };

/** Shows the tenant, and the form that edits its settings. */
function SavedSettings() {
  const { data, error, refetch } = useQuery(query);
  if (error && !data) return <Failed what="The settings" error={error} retry={() => void refetch()} />;
  if (!data) return <LoadingText />;
  return (
    <div className={styles.narrow}>
      <dl className={styles.facts}>
        <dt>ID</dt>
        <dd>
          <Identifier>{data.id}</Identifier>
        </dd>
        <dt>Created</dt>
        <dd>
          <Instant at={data.created_at} />
        </dd>
      </dl>
      <Edit tenant={data} />
    </div>
  );
}

const zones = Intl.supportedValuesOf("timeZone");

/** Edits the settings of the tenant. */
function Edit({ tenant }: { tenant: Schema<"Tenant"> }) {
  const { typed, change, save } = useEdits(
    typedOf(tenant),
    (typed, confirm) => answer(api.PATCH("/v1/tenant", { body: { ...changeOf(tenant, typed), ...(confirm && { confirm }) } })),
    { changes: [["tenant"], ["session"], ["audit-log"], ["meters"]] },
  );
  const changed = changeOf(tenant, typed);
  const text = (name: "name" | "timezone" | "currency") => ({
    value: typed[name],
    onChange: (event: { currentTarget: HTMLInputElement }) => change({ [name]: event.currentTarget.value }),
  });
  const whole = (name: "graceHours" | "requestsPerMinute" | "holdHours", field: string) => ({
    value: typed[name],
    wrong: wrongWhole,
    inputMode: "numeric" as const,
    error: brokenRule(save.error, field),
    change: (value: string) => change({ [name]: value }),
  });
  const choice = (name: "strict" | "v1BodylessWrites" | "hold") => ({
    checked: typed[name],
    onChange: (event: { currentTarget: HTMLInputElement }) => change({ [name]: event.currentTarget.checked }),
  });
  const readable = ![typed.graceHours, typed.requestsPerMinute, typed.holdHours].some(wrongWhole);
  const not = Object.keys(changed).length === 0 ? "Nothing was changed" : undefined;
  return (
    <Form act={save} needs="tenant:manage" submit="Save the settings" not={not} onSubmit={save.mutate}>
      <TextInput label="Name" maxLength={255} {...text("name")} error={brokenRule(save.error, "name")} />
      <TextInput label="Timezone" description="Days, months and billing periods begin at midnight in this time zone" list="zones" {...text("timezone")} error={brokenRule(save.error, "timezone")} />
      <datalist id="zones">
        {zones.map((zone) => (
          <option key={zone} value={zone} />
        ))}
      </datalist>
      <TextInput label="Currency" description="For prices that do not name a currency" maxLength={3} {...text("currency")} error={brokenRule(save.error, "currency")} />
      <NumberField label="Grace, in hours" description="Time after the end of a billing period in which late usage still counts in it" {...whole("graceHours", "grace_hours")} />
      <NativeSelect
        label="Usage of a closed period"
        value={typed.latePolicy}
        error={brokenRule(save.error, "late_policy")}
        onChange={(event) => change({ latePolicy: event.currentTarget.value === "report" ? "report" : "adjust" })}
        data={[
          { value: "adjust", label: "adjust: it is billed as an adjustment" },
          { value: "report", label: "report: it is shown, and not billed" },
        ]}
      />
      <NumberField label="Requests a minute" description="Requests with events. Further requests get 429" {...whole("requestsPerMinute", "requests_per_minute")} />
      <Checkbox label="Strict" description="Events with an unknown customer, event type or field are rejected" {...choice("strict")} error={brokenRule(save.error, "strict")} />
      <NativeSelect
        label="Events that reuse a key with other content"
        value={typed.conflicts}
        error={brokenRule(save.error, "idempotency_conflicts")}
        onChange={(event) => change({ conflicts: event.currentTarget.value === "reject" ? "reject" : "accept" })}
        data={[
          { value: "accept", label: "accept: the events are not counted, but listed as conflicts" },
          { value: "reject", label: "reject" },
        ]}
      />
      <Checkbox label="v1 writes without a body" description="Requests without a body may change data if they have a v1 signature" {...choice("v1BodylessWrites")} />
      <Checkbox label="Hold invoices" description="The provider's draft invoices wait until the reported usage is counted and compared with them" {...choice("hold")} error={brokenRule(save.error, "enabled")} />
      <NumberField label="Hold at most, in hours" description="Time after the grace period until a held invoice becomes final automatically" {...whole("holdHours", "deadline_hours")} />
      <div className={styles.effects} role="status">
        {readable && effects(tenant, changed).map((effect) => (
          <p key={effect}>{effect}</p>
        ))}
      </div>
    </Form>
  );
}
