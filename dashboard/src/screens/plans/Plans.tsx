import { TextInput } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { Dialog } from "../../acts/Dialog";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { answer, api, brokenRule } from "../../api/client";
import { plans } from "../../api/plans";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { PlanState } from "./PlanState";

/** Lists the plans. A plan's prices replace the meters' own prices for the customers with the plan. */
export function Plans() {
  return (
    <>
      <Head where={[<Link to="/meters">Meters</Link>]} title="Plans" action={<Create />}>
        A plan's prices replace the meters' own prices for the customers who have the plan.
      </Head>
      <Allowed to="pricing:read">
        <PlanTable />
      </Allowed>
    </>
  );
}

const columns = [{ title: "Plan" }, { title: "Slug" }, { title: "Created", number: true }, { title: "State" }];

/** Lists the plans. */
function PlanTable() {
  const { archived, page } = useSearch({ from: "/frame/meters/-/plans" });
  const query = useQuery({ ...plans(page, archived !== undefined), placeholderData: keepPreviousData });
  return (
    <>
      <List what="The plans" columns={columns} query={query} page={page} empty={<None />}>
        {(plan) => (
          <tr key={plan.id}>
            <td className={cell.main}>
              <Link to="/meters/-/plans/$plan/prices" params={{ plan: plan.slug }}>
                {plan.name || plan.slug}
              </Link>
            </td>
            <td>
              <Identifier>{plan.slug}</Identifier>
            </td>
            <td className={cell.extra}>
              <Instant at={plan.created_at} as="date" />
            </td>
            <td>
              <PlanState plan={plan} />
            </td>
          </tr>
        )}
      </List>
      <p className="small">
        <Link to="/meters/-/plans" search={archived ? {} : { archived: "yes" }}>
          {archived ? "Hide archived plans" : "Show archived plans"}
        </Link>
      </p>
    </>
  );
}

function None() {
  return (
    <Empty title="No plans yet">
      <p>A customer without a plan is charged the meters' own prices.</p>
    </Empty>
  );
}

/** Shows the button and the dialog that create a plan. */
function Create() {
  const [opened, setOpened] = useState(false);
  const [name, setName] = useState("");
  const [slug, setSlug] = useState("");
  const make = useAct(() => answer(api.POST("/v1/plans", { body: { slug, ...(name && { name }) } })), {
    changes: [["plans"]],
    leads: (made) => ({ to: "/meters/-/plans/$plan/prices", params: { plan: made.slug } }),
  });
  const leave = () => {
    setOpened(false);
    setName("");
    setSlug("");
    make.reset();
  };
  return (
    <>
      <Verb needs="pricing:write" variant="filled" onClick={() => setOpened(true)}>
        Create a plan
      </Verb>
      <Dialog title="Create a plan" opened={opened} leave={leave}>
        <Form act={make} needs="pricing:write" submit="Create the plan" leave={leave} onSubmit={() => make.mutate()}>
          <TextInput label="Name" autoComplete="off" maxLength={255} value={name} error={brokenRule(make.error, "name")} onChange={(event) => setName(event.currentTarget.value)} data-autofocus />
          <TextInput
            label="Slug"
            description="Its name in the API. It cannot be changed later"
            required
            withAsterisk={false}
            autoComplete="off"
            value={slug}
            error={brokenRule(make.error, "slug")}
            onChange={(event) => setSlug(event.currentTarget.value)}
          />
        </Form>
      </Dialog>
    </>
  );
}
