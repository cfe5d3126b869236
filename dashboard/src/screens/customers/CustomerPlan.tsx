import { NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Form } from "../../acts/Form";
import { useEdits } from "../../acts/useEdits";
import { answer, api, brokenRule } from "../../api/client";
import { customerParams } from "../../api/customers";
import { useSession } from "../../api/session";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { written } from "../../values/instants";
import styles from "./CustomerDetails.module.css";

const most = 1_000;

/** Shows and assigns a customer's plan, with the start of an assignment that does not apply yet. */
export function CustomerPlan({ customer }: { customer: string }) {
  const { permissions, tenant } = useSession();
  const { data, error, refetch } = useQuery({
    queryKey: ["plan", customer],
    async queryFn({ signal }) {
      const [assigned, plans] = await Promise.all([
        answer(api.GET("/v1/customers/{external_id}/plan", { params: customerParams(customer), signal })),
        answer(api.GET("/v1/plans", { params: { query: { page_size: most } }, signal })),
      ]);
      return { assigned, plans: plans.data };
    },
    enabled: permissions.includes("pricing:read"),
  });
  const latest = data?.assigned.versions.at(-1);
  const assigned = latest?.plan ?? "";
  const { typed, change, save } = useEdits(
    { plan: assigned },
    ({ plan }, confirm) => answer(api.PUT("/v1/customers/{external_id}/plan", { params: customerParams(customer), body: { plan: plan === "" ? null : plan, ...(confirm && { confirm }) } })),
    { changes: [["plan", customer], ["preview", customer]] },
  );
  if (error && !data) return <Failed what="The plan" error={error} retry={() => void refetch()} />;
  if (!data) return permissions.includes("pricing:read") ? <LoadingText /> : null;
  if (data.plans.length === 0 && !latest) return null;
  const options = [{ value: "", label: "None: the meters' own prices" }, ...data.plans.map(({ slug, name }) => ({ value: slug, label: name || slug }))];
  const archived = latest?.plan && !data.plans.some(({ slug }) => slug === latest.plan) ? [{ value: latest.plan, label: latest.plan }] : [];
  return (
    <section className={styles.plan}>
      <h2>Plan</h2>
      <Form act={save} needs="pricing:write" submit="Assign the plan" not={typed.plan === assigned ? "Nothing was changed" : undefined} onSubmit={save.mutate}>
        <NativeSelect
          label="Assigned plan"
          description="A change takes effect with the customer's next billing period"
          value={typed.plan}
          data={[...options, ...archived]}
          error={brokenRule(save.error, "plan")}
          onChange={(event) => change({ plan: event.currentTarget.value })}
        />
        {latest && latest.plan !== data.assigned.plan && (
          <p className="muted">
            This period uses {data.assigned.plan ?? "the meters' own prices"}; {latest.plan ?? "the meters' own prices"} from {written(latest.effective_from, tenant.timezone, "minute")}.
          </p>
        )}
      </Form>
    </section>
  );
}
