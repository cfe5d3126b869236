import { NativeSelect, TextInput } from "@mantine/core";
import { useState } from "react";
import { Form } from "../../acts/Form";
import { NumberField } from "../../acts/NumberField";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { broken, type Schema } from "../../api/client";
import { setPrice, type Priced } from "../../api/prices";
import { useSession } from "../../api/session";
import { wrongAmount } from "../../values/decimal";
import { lastDay, startOfDay } from "../../values/instants";
import { isShort } from "./charge";
import { Impact } from "./Impact";
import styles from "./Prices.module.css";
import { WorkedCharge } from "./WorkedCharge";

/** What of a price is typed. */
interface Typed {
  base: string;
  included: string;
  rate: string;
  currency: string;
  when: "next" | "day";
  day: string;
}

interface Props {
  of: Priced;
  former: Schema<"Price"> | undefined;
  /** There is none yet. */
  first: boolean;
}

/** What the next billing period is for a new customer. */
export const nextOfNew = "For a customer created in the running billing period: from the start of this period on";

/** The price that is to hold, with what it would charge while it is typed. */
export function NewPrice({ of, former, first }: Props) {
  const { tenant } = useSession();
  const short = former && isShort(former) ? former : undefined; // the form has no fields for other models
  const [typed, setTyped] = useState<Typed>({
    base: short?.base_price ?? "",
    included: short?.included_units ?? "",
    rate: short?.overage_rate ?? "",
    currency: former?.currency ?? tenant.currency,
    when: "next",
    day: "",
  });
  const [previewed, preview] = useState(false);
  const change = (part: Partial<Typed>) => {
    preview(false); // it was of another price
    setTyped({ ...typed, ...part });
  };
  const set = useAct((confirm: string | undefined) => setPrice(of, { ...bodyOf(typed, tenant.timezone), ...(confirm && { confirm }) }), {
    changes: [["pricing"], ["preview", of.customer]],
    done: () => change({ when: "next", day: "" }),
  });
  const dayless = typed.when === "day" && typed.day === "";
  const unreadable = [typed.base, typed.included, typed.rate].some(wrongAmount);
  const field = (label: string, name: "base" | "included" | "rate", sent: string, description: string) => (
    <NumberField label={label} description={description} value={typed[name]} wrong={wrongAmount} error={broken(set.error, sent)} change={(text) => change({ [name]: text })} />
  );
  return (
    <section aria-labelledby="set" className={styles.set}>
      <h2 id="set">{first ? "Set the first price" : "Set another price"}</h2>
      <Form act={set} needs="pricing:write" submit="Set the price" onSubmit={(confirm) => set.mutate(confirm)}>
        {field("Base price", "base", "base_price", "For each billing period, independent of usage")}
        {field("Included units", "included", "included_units", "Included in the base price")}
        {field("Overage rate", "rate", "overage_rate", "For each unit above the included units")}
        <TextInput
          label="Currency"
          maxLength={3}
          autoComplete="off"
          value={typed.currency}
          error={broken(set.error, "currency")}
          onChange={(event) => change({ currency: event.currentTarget.value.toUpperCase().trim() })}
        />
        {first && of.customer === undefined ? (
          <p className="muted">The first price applies from the beginning, including running billing periods.</p>
        ) : (
          <NativeSelect
            label="Applies"
            description={of.customer !== undefined && typed.when === "next" ? nextOfNew : undefined}
            data={[
              { value: "next", label: of.customer === undefined ? "From the next calendar month on" : "From the customer's next billing period on" },
              { value: "day", label: "From a day on" },
            ]}
            value={typed.when}
            onChange={(event) => change({ when: event.currentTarget.value === "day" ? "day" : "next" })}
          />
        )}
        {typed.when === "day" && (
          <TextInput
            label="Day"
            description={`Billing periods that begin then or later, in ${tenant.timezone}`}
            type="date"
            max={lastDay}
            required
            withAsterisk={false}
            value={typed.day}
            error={broken(set.error, "effective_from")}
            onChange={(event) => change({ day: event.currentTarget.value })}
          />
        )}
        <WorkedCharge terms={typed} meter={of.meter} />
        <Verb needs="pricing:write" not={dayless ? "Choose a day first" : unreadable ? "A field is not a number" : undefined} onClick={() => preview(true)}>
          Preview the running bills
        </Verb>
        {previewed && <Impact of={of} body={bodyOf(typed, tenant.timezone)} />}
      </Form>
    </section>
  );
}

function bodyOf({ base, included, rate, currency, when, day }: Typed, timezone: string): Schema<"SetPricing"> {
  return {
    ...(base && { base_price: base }),
    ...(included && { included_units: included }),
    ...(rate && { overage_rate: rate }),
    ...(currency && { currency }),
    ...(when === "day" && { effective_from: startOfDay(day, timezone) }),
  };
}
