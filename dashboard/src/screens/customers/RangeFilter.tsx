import { TextInput } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useSession } from "../../api/session";
import { Filter } from "../../frame/Filter";
import { lastDay } from "../../values/instants";
import { chosenDays, ranges } from "./ranges";

/** Sets the range in the address: a number of days up to today, or a custom range. */
export function RangeFilter({ first }: { /** The label of the default range. */ first: string }) {
  const { range } = useSearch({ strict: false });
  return (
    <>
      <Filter name="range" label="Range" options={[["", first], ...ranges]} />
      {range === "days" && (
        <>
          <Day name="from" label="From" />
          <Day name="to" label="To, inclusive" />
        </>
      )}
    </>
  );
}

/** Shows the field for the first or the last day of the range. */
function Day({ name, label }: { name: "from" | "to"; label: string }) {
  const { tenant } = useSession();
  const { page: _, ...search } = useSearch({ strict: false });
  const days = chosenDays(search, tenant.timezone, new Date());
  const navigate = useNavigate();
  return (
    <TextInput
      type="date"
      max={lastDay}
      aria-label={label}
      title={label}
      value={days[name]}
      onChange={({ currentTarget: { value } }) => void navigate({ to: ".", search: { ...search, ...days, [name]: value } as never, replace: true })}
    />
  );
}
