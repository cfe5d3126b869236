import { TextInput, UnstyledButton } from "@mantine/core";
import { useDebouncedValue, useHotkeys } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useId, useState, type KeyboardEvent } from "react";
import { Dialog } from "../acts/Dialog";
import { useSession } from "../api/session";
import styles from "./Find.module.css";
import { searchResults, type Place } from "./found";
import frame from "./Frame.module.css";

/** Finds a screen, a customer, a meter, a sync or an event by its name, its ID or its key. */
export function Find() {
  const [opened, setOpened] = useState(false);
  useHotkeys([["mod+K", () => setOpened(true)]], []); // the keys also work in fields
  return (
    <>
      <UnstyledButton className={frame.find} onClick={() => setOpened(true)}>
        Find <kbd className="small">{/Mac|iP/.test(navigator.platform) ? "⌘K" : "Ctrl K"}</kbd>
      </UnstyledButton>
      <Dialog title="Find" opened={opened} leave={() => setOpened(false)}>
        <Search leave={() => setOpened(false)} />
      </Dialog>
    </>
  );
}

/** Shows the search field and the results for its text. */
function Search({ leave }: { leave: () => void }) {
  const navigate = useNavigate();
  const session = useSession();
  const list = useId();
  const [typed, setTyped] = useState("");
  const [chosen, setChosen] = useState(0);
  const [text] = useDebouncedValue(typed.trim(), 150);
  const { data = [], isFetching } = useQuery({ ...searchResults(text, session), placeholderData: keepPreviousData });
  const at = Math.min(chosen, data.length - 1);
  const go = ({ link }: Place) => {
    leave();
    void navigate(link as never);
  };
  const pressed = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setChosen(Math.max(0, Math.min(data.length - 1, at + step)));
    }
    if (event.key === "Enter" && data[at] && text === typed.trim()) go(data[at]);
  };
  return (
    <>
      <TextInput
        data-autofocus
        aria-label="Find"
        placeholder="Customer, meter, sync, idempotency key or screen"
        role="combobox"
        aria-expanded
        aria-controls={list}
        aria-activedescendant={data[at] && `${list}-${at}`}
        value={typed}
        onKeyDown={pressed}
        onChange={(event) => {
          setTyped(event.currentTarget.value);
          setChosen(0);
        }}
      />
      <ul id={list} role="listbox" aria-label="Found" className={styles.list}>
        {data.map((place, index) => (
          <li
            key={`${place.kind} ${place.id}`}
            id={`${list}-${index}`}
            role="option"
            aria-selected={index === at}
            className={styles.place}
            onMouseMove={() => setChosen(index)}
            onClick={() => go(place)}
          >
            {place.name} <span className="muted small">{place.kind}</span>
          </li>
        ))}
      </ul>
      <p className="muted small" role="status">
        {data.length === 0 && !isFetching && text !== "" ? "Nothing has this name or ID" : ""}
      </p>
    </>
  );
}
