import { TextInput } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Ask } from "../../acts/Dialog";
import { Form } from "../../acts/Form";
import { typedLoss } from "../../acts/unsaved";
import { useAct } from "../../acts/useAct";
import { answer, api, brokenRule } from "../../api/client";
import { previewMeter } from "../../api/meters";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { definitionOf, fieldsOf, typedOf } from "./definition";
import styles from "./MeterDetails.module.css";
import { MeterFields } from "./MeterFields";
import { Templates } from "./Templates";
import type { Template } from "./meterTemplates";
import { TryOut, useTryOut } from "./TryOut";

/** Creates a meter. */
export function NewMeter() {
  return (
    <>
      <Head where={[<Link to="/meters">Meters</Link>]} title="Create a meter">
        The meter also counts events that have already arrived.
      </Head>
      <Allowed to="meters:write">
        <Fields />
      </Allowed>
    </>
  );
}

/** Returns the values of the form for a definition. */
const formOf = (definition: Partial<Template["definition"]>) => ({ slug: definition.slug ?? "", eventType: definition.event_type ?? "", typed: typedOf(definition) });

/** Shows the form of a new meter, which a template can fill in. */
function Fields() {
  const [template, setTemplate] = useState<Template>();
  const [asked, setAsked] = useState<Template>();
  const [form, setForm] = useState(() => formOf({}));
  const { slug, eventType, typed } = form;
  const change = (part: Partial<typeof form>) => setForm({ ...form, ...part });
  const make = useAct(() => answer(api.POST("/v1/meters", { body: { slug, event_type: eventType, ...fieldsOf(typed) } })), {
    changes: [["meters"]],
    leads: ({ slug }) => ({ to: "/meters/$meter/prices", params: { meter: slug } }),
  });
  const attempt = useTryOut({ event_type: eventType, ...definitionOf(typed) }, previewMeter);
  const error = make.error ?? attempt.fieldError;
  const fill = (chosen: Template) => {
    setTemplate(chosen);
    setForm(formOf(chosen.definition));
    setAsked(undefined);
    make.reset();
  };
  const isChanged = JSON.stringify(form) !== JSON.stringify(formOf(template?.definition ?? {}));
  return (
    <>
      <Templates chosen={template} choose={isChanged ? setAsked : fill} />
      {asked && <Ask loss={typedLoss} stay={() => setAsked(undefined)} leave={() => fill(asked)} />}
      <div className={styles.split}>
        <Form act={make} needs="meters:write" submit="Create the meter" onSubmit={() => make.mutate()}>
          <TextInput
            label="Slug"
            description="Its name in the API and on bills. It cannot be changed later"
            required
            withAsterisk={false}
            autoComplete="off"
            value={slug}
            error={brokenRule(error, "slug")}
            onChange={(event) => change({ slug: event.currentTarget.value })}
          />
          <TextInput
            label="Event type"
            description="The events of this type are counted. It cannot be changed later"
            required
            withAsterisk={false}
            autoComplete="off"
            value={eventType}
            error={brokenRule(error, "event_type")}
            onChange={(event) => change({ eventType: event.currentTarget.value })}
          />
          <MeterFields typed={typed} error={error} change={(part) => change({ typed: { ...typed, ...part } })} />
        </Form>
        <TryOut attempt={attempt} unit={typed.unit} not={eventType === "" ? "Enter the event type first" : undefined} begin={make.reset} />
      </div>
    </>
  );
}
