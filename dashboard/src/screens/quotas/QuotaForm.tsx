import { NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Form } from "../../acts/Form";
import { NumberField } from "../../acts/NumberField";
import { useAct } from "../../acts/useAct";
import { brokenRule } from "../../api/client";
import { allMeters } from "../../api/meters";
import { setQuota, type Quota, type QuotaSubject } from "../../api/quotas";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { wrongAmount } from "../../values/decimal";
import { GroupFields, groupOf, type TypedGroup } from "./GroupFields";
import { modes, optionsOf, periods } from "./words";

/** The meter, group and period, which identify a quota of its subject, with the limit and mode. */
export type QuotaTerms = Pick<Quota, "meter" | "group" | "period" | "limit" | "mode">;

interface Props {
  subject: QuotaSubject;
  /** The quota to change, or the plan's quota to replace. undefined: the form sets a new quota. */
  quota?: QuotaTerms | undefined;
  submit: string;
  leave: () => void;
}

/** Sets a quota of a customer or a plan. The meter, group and period of an existing quota cannot be changed. */
export function QuotaForm({ subject, quota, submit, leave }: Props) {
  const { data: meters, error, refetch } = useQuery(allMeters);
  const [meter, setMeter] = useState(quota?.meter ?? "");
  const [group, setGroup] = useState<TypedGroup>();
  const [limit, setLimit] = useState(quota?.limit ?? "");
  const [mode, setMode] = useState(quota?.mode ?? "hard");
  const [period, setPeriod] = useState(quota?.period ?? "billing");
  const sentGroup = quota ? quota.group : group && groupOf(group);
  const set = useAct(() => setQuota({ ...subject, meter, ...(sentGroup && { group: sentGroup }), limit: limit || null, mode, period }), { changes: [["quotas"]], done: leave });
  if (error && !meters) return <Failed what="The meters" error={error} retry={() => void refetch()} />;
  if (!meters) return <LoadingText />;
  const offered = meters.filter(({ archived_at }) => archived_at === null);
  return (
    <Form act={set} needs="quotas:write" submit={submit} leave={leave} onSubmit={() => set.mutate()}>
      {!quota && (
        <>
          <NativeSelect
            label="Meter"
            required
            withAsterisk={false}
            value={meter}
            data={[{ value: "", label: "Choose a meter" }, ...offered.map(({ slug }) => slug)]}
            error={brokenRule(set.error, "meter")}
            onChange={(event) => {
              setMeter(event.currentTarget.value);
              setGroup(undefined);
            }}
            data-autofocus
          />
          <GroupFields properties={offered.find(({ slug }) => slug === meter)?.group_by ?? []} typed={group} error={brokenRule(set.error, "group")} change={setGroup} />
          <NativeSelect
            label="Period"
            description="Usage starts again from zero in each period. Months, days and hours are of the meter's time zone"
            value={period}
            data={optionsOf(periods)}
            error={brokenRule(set.error, "period")}
            onChange={(event) => setPeriod(event.currentTarget.value as Quota["period"])}
          />
        </>
      )}
      <NumberField label="Limit" description="In the meter's unit. Empty: unlimited" value={limit} wrong={wrongAmount} error={brokenRule(set.error, "limit")} change={setLimit} />
      <NativeSelect label="Mode" value={mode} data={optionsOf(modes)} error={brokenRule(set.error, "mode")} onChange={(event) => setMode(event.currentTarget.value as Quota["mode"])} />
    </Form>
  );
}
