import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import { filterAddress, type Filtered } from "./filters";
import styles from "./Usage.module.css";

/** Shows the property values to which the usage is limited. The user can remove values and add others. */
export function Filters({ properties, filters }: { properties: readonly string[]; filters: Filtered }) {
  const { page: _, filter: __, ...search } = useSearch({ from: "/frame/usage" });
  const navigate = useNavigate();
  const [property, setProperty] = useState(properties[0]!);
  const [value, setValue] = useState("");
  const change = (filters: Filtered) => {
    const filter = filterAddress(filters);
    void navigate({ to: "/usage", search: filter === undefined ? search : { ...search, filter }, replace: true });
  };
  const without = (property: string, value: string) => ({ ...filters, [property]: filters[property]!.filter((one) => one !== value) });
  const add = (event: FormEvent) => {
    event.preventDefault();
    change({ ...filters, [property]: [...new Set([...(filters[property] ?? []), value])] });
    setValue("");
  };
  return (
    <form className={styles.values} onSubmit={add} data-scratch>
      <NativeSelect aria-label="Property" value={property} onChange={(event) => setProperty(event.currentTarget.value)} data={[...properties]} />
      <TextInput
        aria-label="Value"
        placeholder="Value"
        title={'A number, true, false or null selects that JSON value. A text in double quotes selects the string, such as "7".'}
        autoComplete="off"
        value={value}
        onChange={(event) => setValue(event.currentTarget.value)}
      />
      <Button type="submit" variant="default">
        Filter
      </Button>
      {Object.entries(filters).flatMap(([property, values]) =>
        values.map((value) => (
          <Button key={`${property} ${value}`} variant="default" aria-label={`Remove the filter ${property}: ${value}`} onClick={() => change(without(property, value))}>
            {property}: {value || '""'} ×
          </Button>
        )),
      )}
    </form>
  );
}
