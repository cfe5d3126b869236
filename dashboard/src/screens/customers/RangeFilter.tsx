import { TextInput } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useSession } from "../../api/session";
import { Filter } from "../../frame/Filter";
import { lastDay } from "../../values/instants";
import { chosenDays, ranges } from "./ranges";

/** The range of the address: a number of days up to today, or days of one's choice. */
export function RangeFilter({ first }: { /** The range of an address without one. */ first: string }) {
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
