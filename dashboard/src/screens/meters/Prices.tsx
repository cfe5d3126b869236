import { useQuery } from "@tanstack/react-query";
import { Confirm } from "../../acts/Confirm";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import type { Schema } from "../../api/client";
import { endPrice, isShort, pricing, pricings, replacedPrice, withdrawPrice, type Priced } from "../../api/prices";
import { useSession } from "../../api/session";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingRows, LoadingText } from "../../states/Loading";
import { Amount } from "../../values/Amount";
import { Instant } from "../../values/Instant";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import { NewPrice, nextOfNew } from "./NewPrice";
import styles from "./Prices.module.css";

/** Shows the current price, all versions, and the form for the next version. */
export function Prices({ of }: { of: Priced }) {
  const { data, error, refetch } = useQuery(pricing(of));
  if (error && !data) return <Failed what="The price" error={error} retry={() => void refetch()} />;
  return (
    <div className={styles.parts}>
      <section aria-labelledby="versions">
        <p className={styles.current}>{data ? <Current price={data.current} of={of} /> : <LoadingText />}</p>
        <h2 id="versions">Versions</h2>
        {data?.versions.length === 0 ? (
          <Empty title="No price yet">
            {of.customer === undefined && <p>The first price applies from the beginning, including running billing periods.</p>}
          </Empty>
        ) : (
          <Versions of={of} pricing={data} />
        )}
      </section>
      {data && (
        <>
          <NextPrice of={of} pricing={data} />
          {of.customer !== undefined && data.current && <EndPrice customer={of.customer} meter={of.meter} />}
        </>
      )}
    </div>
  );
}

/** Shows the form for the next version, in the currency of the version before or of the price that it replaces. */
function NextPrice({ of, pricing: { versions, current } }: { of: Priced; pricing: Schema<"Pricing"> }) {
  const { tenant } = useSession();
  const former = versions.findLast(({ inherits }) => !inherits);
  const owned = of.plan !== undefined || of.customer !== undefined;
  const { data: replaced, error, isLoading, refetch } = useQuery({ ...replacedPrice(of), enabled: owned && !former });
  if (error && !replaced) return <Failed what="The price that applies now" error={error} retry={() => void refetch()} />;
  if (isLoading) return <LoadingText />;
  return <NewPrice of={of} former={former} current={current} first={versions.length === 0} currency={former?.currency ?? replaced?.currency ?? tenant.currency} />;
}

/** Describes the price that is charged now. */
function Current({ price, of: { meter, plan, customer } }: { price: Schema<"Price"> | undefined; of: Priced }) {
  if (!price && customer !== undefined) return <span className="muted">The price of the customer's plan or the meter's own price is charged.</span>;
  if (!price) return <span className="muted">{plan === undefined ? "Its usage is not charged." : "The meter's own price is charged."}</span>;
  if (price.dimensions) return <>Prices by {price.dimensions.by.join(", ")}</>;
  return <PriceText price={price} meter={meter} />;
}

/** Shows a price in one line, such as 25.00 USD per period, 1,000 tokens included, then 0.02 USD a unit. */
export function PriceText({ price, meter }: { price: Schema<"Price">; meter: string }) {
  if (!isShort(price)) return <>{price.description}</>;
  const { base_price, included_units, overage_rate, currency } = price;
  return (
    <>
      {base_price !== "0" && (
        <>
          <Amount value={base_price} currency={currency} /> per period,{" "}
        </>
      )}
      {included_units !== "0" && (
        <>
          <Usage meter={meter} value={included_units} unitless="units" /> included, then{" "}
        </>
      )}
      <Amount value={overage_rate} currency={currency} /> a unit
    </>
  );
}

/** Shows the current price of a plan or a customer for a meter. Without one: later if there are versions, else none. */
export function PriceNow({ of: { meter, ...owner }, none, later }: { of: Priced; none: string; later: string }) {
  const { data } = useQuery(pricings(owner));
  if (!data) return <LoadingText />;
  const found = data.find(({ meter_slug }) => meter_slug === meter);
  if (found?.current) return <PriceText price={found.current} meter={meter} />;
  return <span className="muted">{found ? later : none}</span>;
}

const columns = [
  { title: "Version" },
  { title: "From" },
  { title: "Base price", number: true },
  { title: "Included", number: true },
  { title: "Overage, per unit", number: true },
  { title: "State" },
];

/** Lists the versions of the price, each with its terms. */
function Versions({ of, pricing }: { of: Priced; pricing: Schema<"Pricing"> | undefined }) {
  if (!pricing) {
    return (
      <Table caption="The versions of the price" columns={columns} busy>
        <LoadingRows columns={columns.length} rows={2} />
      </Table>
    );
  }
  const scheduled = (price: Schema<"Price">) => price.effective_from !== null && new Date(price.effective_from) > new Date();
  return (
    <Table caption="The versions of the price" columns={columns}>
      <tbody>
        {pricing.versions.toReversed().map((price) => (
          <tr key={price.version}>
            <td>{price.version}</td>
            <td>{price.effective_from ? <Instant at={price.effective_from} /> : "the beginning"}</td>
            {price.inherits ? <td colSpan={3}>no own price: the price of the plan or the meter applies</td> : <Terms price={price} meter={of.meter} />}
            <td>
              <div className={styles.state}>
                <PriceState current={pricing.current?.version === price.version} scheduled={scheduled(price)} />
                {scheduled(price) && <Withdraw of={of} price={price} />}
              </div>
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

/** Shows the terms of a version, in cells of the table. */
function Terms({ price, meter }: { price: Schema<"Price">; meter: string }) {
  return (
    <>
      <td className={cell.number} data-title="base">
        <Amount value={price.base_price} currency={price.currency} />
      </td>
      <td className={cell.number} data-title="included">
        <Usage meter={meter} value={price.included_units} />
      </td>
      {isShort(price) ? (
        <td className={cell.number} data-title="beyond">
          <Amount value={price.overage_rate} currency={price.currency} />
        </td>
      ) : (
        <td>{price.description}</td>
      )}
    </>
  );
}

/** Shows the form that ends a customer's own price. */
function EndPrice({ customer, meter }: { customer: string; meter: string }) {
  const end = useAct((confirm: string | undefined) => endPrice(customer, meter, confirm), { changes: [["pricing"], ["preview", customer]] });
  return (
    <section aria-labelledby="end" className={styles.end}>
      <h2 id="end">End the own price</h2>
      <Form act={end} needs="pricing:write" submit="End the own price" onSubmit={(confirm) => end.mutate(confirm)}>
        <p className="muted">From the customer's next billing period on, the price of the plan or the meter applies again. {nextOfNew}.</p>
      </Form>
    </section>
  );
}

/** Shows whether a version is charged now or is scheduled. */
function PriceState({ current, scheduled }: { current: boolean; scheduled: boolean }) {
  if (current) return <State is="good">charged now</State>;
  if (scheduled) return <State is="waiting">scheduled</State>;
  return <State is="off">not charged now</State>;
}

/** Shows the button that withdraws a scheduled version. */
function Withdraw({ of, price }: { of: Priced; price: Schema<"Price"> }) {
  const withdraw = useAct<string>(() => withdrawPrice(of, price.version), { changes: [["pricing"]] });
  return (
    <Confirm verb="Withdraw" thing={`version ${price.version}`} needs="pricing:write" act={withdraw} danger>
      The version does not take effect{price.effective_from && <> at <Instant at={price.effective_from} /></>}. Other prices and past charges do not change.
    </Confirm>
  );
}
