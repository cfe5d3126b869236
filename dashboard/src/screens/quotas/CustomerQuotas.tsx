import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { customer as readCustomer } from "../../api/customers";
import { entitlements, type EntitledQuota } from "../../api/quotas";
import { Level } from "../../charts/Level";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Ago } from "../../values/Ago";
import { excess, sum } from "../../values/decimal";
import { List } from "../../values/List";
import { State } from "../../values/State";
import { cell } from "../../values/Table";
import { Usage } from "../../values/Usage";
import { DeleteQuota } from "./DeleteQuota";
import { Features } from "./Features";
import { Limit } from "./Limit";
import { QuotaScope } from "./QuotaScope";
import styles from "./Quotas.module.css";
import { SetQuota } from "./SetQuota";

/** Shows the quotas of a customer with their usage, and the features of the customer's plan. */
export function CustomerQuotas() {
  const params = useParams({ from: "/frame/customers/$customer/quotas" });
  const { data: customer } = useQuery(readCustomer(params.customer));
  return <Allowed to="quotas:read">{customer && <Entitlements customer={customer.external_id} />}</Allowed>;
}

const columns = [{ title: "Meter" }, { title: "Usage" }, { title: "Remaining", number: true }, { title: "Limit" }, { title: "Resets" }, { title: "Set for" }, { title: "Actions", unseen: true }];

/** Lists the quotas that apply to the customer, and the features of its plan. */
function Entitlements({ customer }: { customer: string }) {
  const query = useQuery(entitlements(customer));
  const { data } = query;
  return (
    <>
      <Head part title="Quotas" action={<SetQuota subject={{ customer }} />}>
        A customer's own quota replaces the plan's quota for the same meter, group and period.
      </Head>
      <List what="The quotas" columns={columns} query={query} rows={2} empty={<None />}>
        {(quota) => <Row key={quota.quota_id} quota={quota} customer={customer} plan={data?.plan ?? ""} />}
      </List>
      {data?.plan && (
        <section aria-labelledby="features" className={styles.section}>
          <h2 id="features">Features</h2>
          <p className="muted">
            The customer has the features of the plan{" "}
            <Link to="/meters/-/plans/$plan/features" params={{ plan: data.plan }}>
              {data.plan}
            </Link>
            .
          </p>
          <Features of={data.features} />
        </section>
      )}
    </>
  );
}

/** Shows a quota, its use and its buttons. */
function Row({ quota, customer, plan }: { quota: EntitledQuota; customer: string; plan: string }) {
  const { meter, used, reserved, limit, remaining, resets_at, own } = quota;
  return (
    <tr>
      <td className={cell.main}>
        <QuotaScope of={quota} />
      </td>
      <td className={cell.bar}>
        <Usage meter={meter} value={used} /> used, <Usage meter={meter} value={reserved} /> reserved
        {limit !== null && <Level used={used} reserved={reserved} limit={limit} />}
      </td>
      <td className={cell.number} data-title="remaining">
        {remaining === null ? <span className="muted">unlimited</span> : <Usage meter={meter} value={remaining} />}
        {limit !== null && excess(sum([used, reserved]), limit) !== "0" && (
          <div>
            <State is="bad">exceeded</State>
          </div>
        )}
      </td>
      <td data-title="limit">
        <Limit of={quota} />
      </td>
      <td data-title="resets">{resets_at ? <Ago at={resets_at} /> : <span className="muted">never</span>}</td>
      <td data-title="set for">{own ? "customer" : `plan ${plan}`}</td>
      <td>
        <div className={styles.verbs}>
          <SetQuota subject={{ customer }} verb={own ? "Change" : "Replace"} quota={quota} />
          {own && (
            <DeleteQuota id={quota.quota_id} quota={quota}>
              The usage is no longer limited by this quota. If the plan has a quota for the same meter, group and period, that quota applies.
            </DeleteQuota>
          )}
        </div>
      </td>
    </tr>
  );
}

function None() {
  return (
    <Empty title="No quotas">
      <p>The usage of this customer is not limited. Set a quota here, or for all customers of a plan on the plan's screen.</p>
    </Empty>
  );
}
