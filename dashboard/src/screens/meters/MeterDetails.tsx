import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useState } from "react";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { answer, api, type Schema } from "../../api/client";
import { meter as read } from "../../api/meters";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { condition, counting, properties, sameCounting } from "./counting";
import styles from "./MeterDetails.module.css";
import { MeterFields, type Typed } from "./MeterFields";

/** What a meter is, and what of it can be changed. */
export function MeterDetails() {
  const params = useParams({ from: "/frame/meters/$meter/details" });
  const { data } = useQuery(read(params.meter));
  if (!data) return null;
  return (
    <div className={styles.split}>
      <Edit key={data.id} meter={data} />
      <Facts meter={data} />
    </div>
  );
}

function Facts({ meter }: { meter: Schema<"Meter"> }) {
  return (
    <dl className={styles.facts}>
      <dt>ID</dt>
      <dd>
        <Identifier>{meter.id}</Identifier>
      </dd>
      <dt>Slug</dt>
      <dd>
        <Identifier>{meter.slug}</Identifier>
      </dd>
      <dt>Event type</dt>
      <dd>
        <Identifier>{meter.event_type}</Identifier>
      </dd>
      <dt>Value</dt>
      <dd>{meter.value_property ? <Identifier>{meter.value_property}</Identifier> : "value of the event"}</dd>
      {meter.unit && (
        <>
          <dt>Unit</dt>
          <dd>{meter.unit}</dd>
        </>
      )}
      {meter.filters.length > 0 && (
        <>
          <dt>Filters</dt>
          {meter.filters.map((filter) => (
            <dd key={condition(filter)}>
              <Identifier>{condition(filter)}</Identifier>
            </dd>
          ))}
        </>
      )}
      <dt>Created</dt>
      <dd>
        <Instant at={meter.created_at} />
      </dd>
      {meter.archived_at && (
        <>
          <dt>Archived</dt>
          <dd>
            <Instant at={meter.archived_at} />
          </dd>
        </>
      )}
      {meter.counted_from && (
        <>
          <dt>Counts from</dt>
          <dd>
            <Instant at={meter.counted_from} />. Earlier events were no longer stored.
          </dd>
        </>
      )}
    </dl>
  );
}

const typedOf = (meter: Schema<"Meter">): Typed => ({
  name: meter.name,
  aggregation: meter.aggregation,
  groupBy: meter.group_by.join("\n"),
  scale: meter.usage_scale,
});

function Edit({ meter }: { meter: Schema<"Meter"> }) {
  const [typed, setTyped] = useState(() => typedOf(meter));
  const next = { aggregation: typed.aggregation, group_by: properties(typed.groupBy) };
  const counts = !sameCounting(meter, next);
  const reports = typed.scale !== meter.usage_scale;
  const body = {
    ...(typed.name !== meter.name && { name: typed.name }),
    ...(counts && next),
    ...(reports && { usage_scale: typed.scale }),
  };
  const save = useAct((confirm: string | undefined) => answer(api.PATCH("/v1/meters/{slug}", { params: { path: { slug: meter.slug } }, body: { ...body, ...(confirm && { confirm }) } })), {
    changes: [["meters"], ["meter", meter.slug]],
    done: (saved) => setTyped(typedOf(saved)),
  });
  const not = Object.keys(body).length === 0 ? "Nothing was changed" : undefined;
  return (
    <Form act={save} needs="meters:write" submit="Save the meter" not={not} onSubmit={(confirm) => save.mutate(confirm)}>
      <MeterFields typed={typed} error={save.error} change={(part) => setTyped({ ...typed, ...part })} />
      <div role="status">
        {meter.status === "backfilling" && <Backfill meter={meter} />}
        {counts && <p>All events are counted again: {counting({ ...meter, ...next })}. Until that is complete, usage is shown and billed as before.</p>}
        {reports && <p>The reported usage of open periods changes. Events are not counted again.</p>}
      </div>
    </Form>
  );
}

function Backfill({ meter }: { meter: Schema<"Meter"> }) {
  return (
    <p className={styles.waiting}>
      Earlier events are being counted in this way
      {meter.backfill && `: ${meter.backfill.counted_days} of ${meter.backfill.days} days are complete`}. {meter.current ? `Until that is complete, usage is ${counting(meter.current)}.` : "Until that is complete, the meter's usage is neither shown nor billed."}
    </p>
  );
}
