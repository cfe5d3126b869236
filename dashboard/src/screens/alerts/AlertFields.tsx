import { NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { brokenRule } from "../../api/client";
import { allMeters } from "../../api/meters";
import { allPlans } from "../../api/plans";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { GroupFields } from "../quotas/GroupFields";
import { optionsOf } from "../quotas/words";
import { NumberFields } from "./NumberFields";
import { types } from "./words";
import type { Scope, Typed } from "./definition";

interface Props {
  typed: Typed;
  error: Error | null;
  change: (part: Partial<Typed>) => void;
}

const scopes: Record<Scope, string> = { all: "All customers", plan: "The customers of a plan", customer: "One customer" };

/** Shows the fields of a new alert. */
export function AlertFields({ typed, error, change }: Props) {
  const { type, scope } = typed;
  return (
    <>
      <TextInput label="Name" required withAsterisk={false} maxLength={255} autoComplete="off" value={typed.name} error={brokenRule(error, "name")} onChange={(event) => change({ name: event.currentTarget.value })} />
      <NativeSelect
        label="Type"
        data={optionsOf(types)}
        value={type}
        error={brokenRule(error, "type")}
        onChange={(event) => change({ type: event.currentTarget.value as Typed["type"], meter: "", group: undefined })}
      />
      <NativeSelect label="Customers" data={optionsOf(scopes)} value={scope} onChange={(event) => change({ scope: event.currentTarget.value as Scope })} />
      {scope === "customer" && (
        <TextInput
          label="External ID of the customer"
          required
          withAsterisk={false}
          autoComplete="off"
          value={typed.customer}
          error={brokenRule(error, "customer")}
          onChange={(event) => change({ customer: event.currentTarget.value })}
        />
      )}
      {scope === "plan" && <Plan typed={typed} error={error} change={change} />}
      {type !== "silence" && <Meter typed={typed} error={error} change={change} />}
      <NumberFields typed={typed} error={error} change={change} />
      {type === "spend" && (
        <TextInput
          label="Currency"
          description="Charges in other currencies are not counted. Empty: the tenant's currency"
          maxLength={3}
          autoComplete="off"
          value={typed.currency}
          error={brokenRule(error, "currency")}
          onChange={(event) => change({ currency: event.currentTarget.value.toUpperCase().trim() })}
        />
      )}
    </>
  );
}

/** Shows the field for the plan of the alert's customers. */
function Plan({ typed, error, change }: Props) {
  const { data: plans, error: failure, refetch } = useQuery(allPlans);
  if (failure && !plans) return <Failed what="The plans" error={failure} retry={() => void refetch()} />;
  if (!plans) return <LoadingText />;
  return (
    <NativeSelect
      label="Plan"
      required
      withAsterisk={false}
      value={typed.plan}
      data={[{ value: "", label: "Choose a plan" }, ...plans.map(({ slug, name }) => ({ value: slug, label: name || slug }))]}
      error={brokenRule(error, "plan")}
      onChange={(event) => change({ plan: event.currentTarget.value })}
    />
  );
}

/** Shows the fields for the meter and its group. */
function Meter({ typed: { type, meter, group }, error, change }: Props) {
  const { data: meters, error: failure, refetch } = useQuery(allMeters);
  if (failure && !meters) return <Failed what="The meters" error={failure} retry={() => void refetch()} />;
  if (!meters) return <LoadingText />;
  const offered = meters.filter(({ archived_at }) => archived_at === null);
  return (
    <>
      <NativeSelect
        label="Meter"
        required={type === "usage"}
        withAsterisk={false}
        value={meter}
        data={[{ value: "", label: type === "usage" ? "Choose a meter" : "All meters" }, ...offered.map(({ slug }) => slug)]}
        error={brokenRule(error, "meter")}
        onChange={(event) => change({ meter: event.currentTarget.value, group: undefined })}
      />
      {type !== "spend" && <GroupFields properties={offered.find(({ slug }) => slug === meter)?.group_by ?? []} typed={group} error={brokenRule(error, "group")} change={(group) => change({ group })} />}
    </>
  );
}
