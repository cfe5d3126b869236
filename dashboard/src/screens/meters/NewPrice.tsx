import { NativeSelect, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { brokenRule, type Schema } from "../../api/client";
import { meter } from "../../api/meters";
import { setPrice, type Priced } from "../../api/prices";
import { useSession } from "../../api/session";
import { isDay, lastDay, startOfDay } from "../../values/instants";
import { Impact } from "./Impact";
import styles from "./Prices.module.css";
import { PriceCurve } from "./PriceCurve";
import { ProviderDifferences } from "./ProviderDifferences";
import { incomplete, termsOf, typedOf, type TypedTerms } from "./terms";
import { TermsFields } from "./TermsFields";
import { WorkedCharge } from "./WorkedCharge";

/** The typed start of a price. */
interface Start {
  when: "next" | "day";
  day: string;
}

interface Props {
  of: Priced;
  former: Schema<"Price"> | undefined;
  /** The price that is charged now. */
  current: Schema<"Price"> | undefined;
  /** Whether there is no version of the price yet. */
  first: boolean;
  /** The currency of the price that the new price follows or replaces. */
  currency: string;
}

/** The meaning of the next billing period for a new customer. */
export const nextOfNew = "For a customer created in the running billing period: from the start of this period on";

/** Shows the form for a new price, and its charges while the user types. */
export function NewPrice({ of, former, current, first, currency }: Props) {
  const { tenant, permissions } = useSession();
  const { data: measured } = useQuery({ ...meter(of.meter), enabled: permissions.includes("meters:read") });
  const [typed, setTyped] = useState(() => typedOf(former, currency));
  const [start, setStart] = useState<Start>({ when: "next", day: "" });
  const [previewed, preview] = useState(false);
  const change = (part: Partial<TypedTerms>) => {
    preview(false); // the shown preview is of the previous terms
    setTyped({ ...typed, ...part });
  };
  const move = (part: Partial<Start>) => {
    preview(false);
    setStart({ ...start, ...part });
  };
  const why = incomplete(typed);
  const complete = useMemo(() => (why === undefined ? { typed, terms: termsOf(typed) } : undefined), [typed, why]);
  const [calculated] = useDebouncedValue(complete, 250);
  const body: Schema<"SetPricing"> = { ...termsOf(typed), ...(start.when === "day" && isDay(start.day) && { effective_from: startOfDay(start.day, tenant.timezone) }) };
  const set = useAct((confirm: string | undefined) => setPrice(of, { ...body, ...(confirm && { confirm }) }), {
    changes: [["pricing"], ["preview", of.customer]],
    done: () => move({ when: "next", day: "" }),
  });
  return (
    <section aria-labelledby="set" className={styles.set}>
      <h2 id="set">{first ? "Set the first price" : "Set another price"}</h2>
      <div className={styles.editor} data-wide={typed.by.length > 0 || undefined}>
        <Form act={set} needs="pricing:write" submit="Set the price" onSubmit={(confirm) => set.mutate(confirm)}>
          <TermsFields typed={typed} properties={measured?.group_by ?? []} error={set.error} change={change} />
          <StartFields of={of} first={first} start={start} error={brokenRule(set.error, "effective_from")} change={move} />
          <ProviderDifferences of={set.data?.provider_differences ?? []} />
        </Form>
        <div className={styles.outcome}>
          <WorkedCharge typed={calculated?.typed ?? typed} terms={calculated?.terms} meter={of.meter} />
          {calculated && <PriceCurve of={of} {...calculated} current={current} />}
          <div>
            <Verb needs="pricing:write" not={start.when === "day" && start.day === "" ? "Choose a day first" : why} onClick={() => preview(true)}>
              Preview the running bills
            </Verb>
          </div>
          {previewed && <Impact of={of} body={body} />}
        </div>
      </div>
    </section>
  );
}

interface StartProps {
  of: Priced;
  first: boolean;
  start: Start;
  error: string | undefined;
  change: (part: Partial<Start>) => void;
}

/** Shows the fields for when the price begins to apply. */
function StartFields({ of: { customer }, first, start: { when, day }, error, change }: StartProps) {
  const { tenant } = useSession();
  if (first && customer === undefined) return <p className="muted">The first price applies from the beginning, including running billing periods.</p>;
  return (
    <>
      <NativeSelect
        label="Applies"
        description={customer !== undefined && when === "next" ? nextOfNew : undefined}
        data={[
          { value: "next", label: customer === undefined ? "From the next calendar month on" : "From the customer's next billing period on" },
          { value: "day", label: "From a day on" },
        ]}
        value={when}
        onChange={(event) => change({ when: event.currentTarget.value === "day" ? "day" : "next" })}
      />
      {when === "day" && (
        <TextInput
          label="Day"
          description={`Billing periods that begin then or later, in ${tenant.timezone}`}
          type="date"
          max={lastDay}
          required
          withAsterisk={false}
          value={day}
          error={error}
          onChange={(event) => change({ day: event.currentTarget.value })}
        />
      )}
    </>
  );
}
