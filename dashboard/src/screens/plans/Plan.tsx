import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useParams } from "@tanstack/react-router";
import { Confirm } from "../../acts/Confirm";
import { useAct } from "../../acts/useAct";
import { answer, api, Failure, type Schema } from "../../api/client";
import { plan as read } from "../../api/plans";
import { Head } from "../../frame/Head";
import { Tabs } from "../../frame/Tabs";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Identifier } from "../../values/Identifier";
import { PlanState } from "./PlanState";

const tabs = [
  ["/meters/-/plans/$plan/prices", "Prices"],
  ["/meters/-/plans/$plan/quotas", "Quotas"],
  ["/meters/-/plans/$plan/features", "Features"],
] as const;

/** Shows the head and the tabs of every screen about one plan. */
export function Plan() {
  return (
    <Allowed to="pricing:read">
      <PlanFrame />
    </Allowed>
  );
}

/** Shows the head and the tabs of the plan, or that the plan does not exist. */
function PlanFrame() {
  const params = useParams({ from: "/frame/meters/-/plans/$plan" });
  const { data, error, refetch } = useQuery(read(params.plan));
  if (error instanceof Failure && error.status === 404) {
    return (
      <Empty title={`There is no plan ${params.plan}`}>
        <Link to="/meters/-/plans">All plans</Link>
      </Empty>
    );
  }
  if (error && !data) return <Failed what="The plan" error={error} retry={() => void refetch()} />;
  return (
    <>
      <Head where={[<Link to="/meters">Meters</Link>, <Link to="/meters/-/plans">Plans</Link>]} here={params.plan} title={data?.name || params.plan} action={data && <Archive plan={data} />}>
        {data ? (
          <>
            <PlanState plan={data} /> · <Identifier>{data.slug}</Identifier> · <Link to="/customers">Customers</Link> get the plan on their details screen.
          </>
        ) : (
          <LoadingText />
        )}
      </Head>
      <Tabs label="About this plan" tabs={tabs} params={params} />
      <Outlet />
    </>
  );
}

/** Shows the button that archives the plan or, if the plan is archived, unarchives it. */
function Archive({ plan: { slug, archived_at } }: { plan: Schema<"Plan"> }) {
  const path = { params: { path: { slug } } };
  const archive = useAct<string>(() => answer(api.POST("/v1/plans/{slug}/archive", path)), { changes: [["plans"]] });
  const unarchive = useAct<string>(() => answer(api.POST("/v1/plans/{slug}/unarchive", path)), { changes: [["plans"]] });
  if (archived_at) {
    return (
      <Confirm key="unarchive" verb="Unarchive" thing={`plan ${slug}`} needs="pricing:write" act={unarchive}>
        The plan can be assigned to customers again.
      </Confirm>
    );
  }
  return (
    <Confirm key="archive" verb="Archive" thing={`plan ${slug}`} needs="pricing:write" act={archive} danger>
      Lists no longer show the plan, and it cannot be assigned to more customers. Customers who have the plan keep it and are charged its prices. It can be unarchived.
    </Confirm>
  );
}
