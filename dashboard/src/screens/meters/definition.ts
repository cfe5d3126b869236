import { stringify } from "lossless-json";
import type { Schema } from "../../api/client";
import type { Definition } from "../../api/meters";
import { hasValues, lines, type Operator } from "./counting";
import { parseValue, valueText, type FilterValue } from "./filterValues";

/** The typed fields of a meter that can be changed. */
export interface Typed {
  name: string;
  unit: string;
  aggregation: Schema<"Meter">["aggregation"];
  valueProperty: string;
  filters: TypedFilter[];
  groupBy: string;
  scale: number;
}

export interface TypedFilter {
  property: string;
  operator: Operator;
  /** The values, one per line. An operator with one value uses the first line. */
  values: string;
}

/** Returns the typed fields of a definition, which the form shows. */
export function typedOf(meter: Partial<Schema<"Meter"> | Schema<"CreateMeter">>): Typed {
  return {
    name: meter.name ?? "",
    unit: meter.unit ?? "",
    aggregation: meter.aggregation ?? "sum",
    valueProperty: meter.value_property ?? "",
    filters: (meter.filters ?? []).map(({ property, operator, values = [] }) => ({ property, operator, values: values.map(valueText).join("\n") })),
    groupBy: (meter.group_by ?? []).join("\n"),
    scale: meter.usage_scale ?? 0,
  };
}

/** Reports whether a filter with the operator can have several values. */
export const hasSeveralValues = (operator: Operator) => operator === "in" || operator === "not_in";

/** Returns the lines that the operator of a filter uses. The other lines are kept for another operator. */
export const usedLines = ({ operator, values }: TypedFilter) => (hasSeveralValues(operator) ? values : values.split("\n", 1)[0]!);

/** Returns the values that the user typed for a filter. */
export function valuesOf(filter: TypedFilter): FilterValue[] {
  return hasValues(filter.operator) ? lines(usedLines(filter)).map(parseValue) : [];
}

/** Returns the typed fields that decide which events the meter counts, and how. */
export function definitionOf(typed: Typed): Definition {
  return {
    aggregation: typed.aggregation,
    value_property: typed.valueProperty.trim(),
    filters: typed.filters.map((filter) => ({ property: filter.property.trim(), operator: filter.operator, ...(hasValues(filter.operator) && { values: valuesOf(filter) }) })),
    group_by: lines(typed.groupBy),
  };
}

/** Returns the typed fields in the form that the API accepts. */
export function fieldsOf(typed: Typed) {
  return { name: typed.name, unit: typed.unit, ...definitionOf(typed), usage_scale: typed.scale };
}

/** Returns the fields of a request that differ from those of the saved meter. */
export function changedFields(meter: Schema<"Meter">, typed: Typed): Partial<ReturnType<typeof fieldsOf>> {
  const saved = new Map(Object.entries(fieldsOf(typedOf(meter))));
  return Object.fromEntries(Object.entries(fieldsOf(typed)).filter(([field, value]) => stringify(value) !== stringify(saved.get(field))));
}
