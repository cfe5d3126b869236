import { NativeSelect, TextInput } from "@mantine/core";
import type { GroupKey } from "../../values/groups";
import { parseValue } from "../meters/filterValues";

/** The typed value of each property of a group. undefined: all usage. */
export type TypedGroup = Record<string, string> | undefined;

interface Props {
  properties: readonly string[];
  typed: TypedGroup;
  error: string | undefined;
  change: (typed: TypedGroup) => void;
}

/** Shows the fields to choose all usage of a meter or one of its groups. */
export function GroupFields({ properties, typed, error, change }: Props) {
  if (properties.length === 0) return null;
  const choose = (all: boolean) => change(all ? undefined : Object.fromEntries(properties.map((property) => [property, ""])));
  return (
    <>
      <NativeSelect
        label="Usage"
        value={typed ? "group" : "all"}
        error={error}
        data={[
          { value: "all", label: "All usage of the meter" },
          { value: "group", label: "One group of the meter" },
        ]}
        onChange={(event) => choose(event.currentTarget.value === "all")}
      />
      {typed &&
        properties.map((property) => (
          <TextInput
            key={property}
            label={`Value of ${property}`}
            description="A number, true, false or null is that JSON value. null: events without the property"
            required
            withAsterisk={false}
            autoComplete="off"
            value={typed[property] ?? ""}
            onChange={(event) => change({ ...typed, [property]: event.currentTarget.value })}
          />
        ))}
    </>
  );
}

/** Returns the group that was typed. */
export const groupOf = (typed: Record<string, string>): GroupKey => Object.fromEntries(Object.entries(typed).map(([property, text]) => [property, parseValue(text)]));
