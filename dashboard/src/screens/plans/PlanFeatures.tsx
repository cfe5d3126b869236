import { Textarea } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useState } from "react";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { answer, api, brokenRule, type Schema } from "../../api/client";
import { plan as read } from "../../api/plans";
import { Head } from "../../frame/Head";
import { LoadingText } from "../../states/Loading";
import { objectText, parseObject } from "../../values/objects";
import styles from "./PlanFeatures.module.css";

/** Shows the form of a plan's features, which the tenant's application interprets. */
export function PlanFeatures() {
  const { plan } = useParams({ from: "/frame/meters/-/plans/$plan/features" });
  const { data } = useQuery(read(plan));
  return (
    <>
      <Head part title="Features">
        Your application reads a customer's features with its quotas and interprets them.
      </Head>
      {data ? <Edit plan={data} /> : <LoadingText />}
    </>
  );
}

/** Edits the features as JSON. */
function Edit({ plan: { slug, features } }: { plan: Schema<"Plan"> }) {
  const saved = objectText(features);
  const [text, setText] = useState(saved);
  const typed = parseObject(text);
  const save = useAct((features: Record<string, unknown>) => answer(api.PUT("/v1/plans/{slug}/features", { params: { path: { slug } }, body: { features } })), {
    changes: [["plans"], ["quotas"]],
  });
  const wrong = "wrong" in typed ? typed.wrong : undefined;
  const not = wrong ?? ("object" in typed && objectText(typed.object) === saved ? "Nothing was changed" : undefined);
  return (
    <div className={styles.narrow}>
      <Form act={save} needs="quotas:write" submit="Save the features" not={not} onSubmit={() => "object" in typed && save.mutate(typed.object)}>
        <Textarea
          label="Features as JSON"
          description={'At most 100 features, such as {"sso": true, "seats": 5}. A value is a text, a number, true or false'}
          autosize
          minRows={4}
          maxRows={16}
          classNames={{ input: "mono" }}
          value={text}
          error={wrong ?? brokenRule(save.error, "features")}
          onChange={(event) => setText(event.currentTarget.value)}
        />
      </Form>
    </div>
  );
}
