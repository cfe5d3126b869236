import { NativeSelect, Textarea, TextInput } from "@mantine/core";
import { brokenRule } from "../../api/client";
import type { Typed } from "./definition";
import { Filters } from "./Filters";

const aggregations = [
  { value: "sum", label: "The sum of the events' values" },
  { value: "count", label: "The number of events" },
];

const scales = Array.from({ length: 7 }, (_, scale) => ({ value: String(scale), label: scale === 0 ? "Whole units" : `${scale} decimals` }));

interface Props {
  typed: Typed;
  error: Error | null;
  change: (part: Partial<Typed>) => void;
}

/** Shows the fields of a meter that can be changed after its creation. */
export function MeterFields({ typed, error, change }: Props) {
  return (
    <>
      <TextInput label="Name" value={typed.name} error={brokenRule(error, "name")} onChange={(event) => change({ name: event.currentTarget.value })} />
      <TextInput
        label="Unit"
        description="Name of the unit of usage, such as tokens. For display only"
        value={typed.unit}
        error={brokenRule(error, "unit")}
        onChange={(event) => change({ unit: event.currentTarget.value })}
      />
      <NativeSelect
        label="Counts"
        data={aggregations}
        value={typed.aggregation}
        error={brokenRule(error, "aggregation")}
        onChange={(event) => change({ aggregation: event.currentTarget.value === "count" ? "count" : "sum" })}
      />
      <TextInput
        label="Value property"
        description="Property with the value, such as usage.total_tokens. Empty: the event's own value. Events without a usable value are not counted"
        autoComplete="off"
        value={typed.valueProperty}
        error={brokenRule(error, "value_property")}
        onChange={(event) => change({ valueProperty: event.currentTarget.value })}
      />
      <Filters filters={typed.filters} error={error} change={(filters) => change({ filters })} />
      <Textarea
        label="Group by"
        description="Event properties by which usage is grouped, one per line, at most five"
        autosize
        minRows={2}
        value={typed.groupBy}
        error={brokenRule(error, "group_by")}
        onChange={(event) => change({ groupBy: event.currentTarget.value })}
      />
      <NativeSelect
        label="Reported as"
        description="For a provider that charges units. Odometer's own charges are always exact"
        data={scales}
        value={String(typed.scale)}
        error={brokenRule(error, "usage_scale")}
        onChange={(event) => change({ scale: Number(event.currentTarget.value) })}
      />
    </>
  );
}
