import { Button, TextInput } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import { lastDay } from "../../values/instants";
import { Folded } from "../../frame/Folded";
import styles from "./Events.module.css";

const fields = [
  ["customer", "Customer", "text"],
  ["type", "Event type", "text"],
  ["key", "Idempotency key", "text"],
  ["from", "From", "datetime-local"],
  ["until", "Until", "datetime-local"],
] as const;

/** Returns the text of a field for a value of the address. A day becomes its first minute. */
const shown = (kind: string, text = "") => (kind === "datetime-local" && /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00` : text);

type Typed = { [name in (typeof fields)[number][0]]?: string };

/** Shows the search fields. A search replaces all parameters of the address: the results start at the first page. */
export function Search() {
  const navigate = useNavigate();
  const { customer, type, key, from, until } = useSearch({ from: "/frame/events" });
  // The React key resets the fields when the address changes, for example when the user goes back.
  const address = { customer, type, key, from, until };
  return <Fields key={JSON.stringify(address)} initial={address} find={(typed) => void navigate({ to: "/events", search: typed })} />;
}

/** Shows the fields of the search. Calls find with the trimmed texts that are not empty. */
function Fields({ initial, find }: { initial: { [name in keyof Typed]: string | undefined }; find: (typed: Typed) => void }) {
  const [typed, setTyped] = useState(initial);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    find(Object.fromEntries(Object.entries(typed).flatMap(([name, text = ""]) => (text.trim() === "" ? [] : [[name, text.trim()]]))));
  };
  return (
    <Folded opener="Search events" asked={Object.values(initial).some(Boolean)}>
      <form className={styles.search} role="search" aria-label="Events" onSubmit={submit}>
        {fields.map(([name, label, kind]) => (
          <TextInput
            key={name}
            label={label}
            type={kind}
            max={kind === "text" ? undefined : `${lastDay}T23:59`}
            autoComplete="off"
            value={shown(kind, typed[name])}
            onChange={(event) => {
              const { value } = event.currentTarget;
              setTyped((before) => ({ ...before, [name]: value }));
            }}
          />
        ))}
        <Button type="submit" variant="default">
          Search
        </Button>
      </form>
    </Folded>
  );
}
