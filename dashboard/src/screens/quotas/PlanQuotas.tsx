import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { quotas } from "../../api/quotas";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Instant } from "../../values/Instant";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { DeleteQuota } from "./DeleteQuota";
import { Limit } from "./Limit";
import { QuotaScope } from "./QuotaScope";
import styles from "./Quotas.module.css";
import { SetQuota } from "./SetQuota";

/** Lists the quotas of a plan. Each quota limits each customer of the plan separately. */
export function PlanQuotas() {
  const { plan } = useParams({ from: "/frame/meters/-/plans/$plan/quotas" });
  return (
    <Allowed to="quotas:read">
      <Head part title="Quotas" action={<SetQuota subject={{ plan }} />}>
        Each quota limits every customer of the plan on its own.
      </Head>
      <Quotas plan={plan} />
    </Allowed>
  );
}

const columns = [{ title: "Meter" }, { title: "Limit" }, { title: "Created", number: true }, { title: "Actions", unseen: true }];

/** Lists the quotas of the plan. */
function Quotas({ plan }: { plan: string }) {
  const query = useQuery(quotas({ plan }));
  return (
    <List what="The quotas" columns={columns} query={query} rows={2} empty={<None />}>
      {(quota) => (
        <tr key={quota.id}>
          <td className={cell.main}>
            <QuotaScope of={quota} />
          </td>
          <td>
            <Limit of={quota} />
          </td>
          <td className={cell.extra}>
            <Instant at={quota.created_at} as="date" />
          </td>
          <td>
            <div className={styles.verbs}>
              <SetQuota subject={{ plan }} verb="Change" quota={quota} />
              <DeleteQuota id={quota.id} quota={quota}>
                The usage of the plan's customers is no longer limited by this quota. Their own quotas stay.
              </DeleteQuota>
            </div>
          </td>
        </tr>
      )}
    </List>
  );
}

function None() {
  return (
    <Empty title="No quotas yet">
      <p>The plan does not limit the usage of its customers.</p>
    </Empty>
  );
}
