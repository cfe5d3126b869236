import { Button, TextInput } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Fragment, useState, type FormEvent } from "react";
import { answer, api, type Schema } from "../../api/client";
import { useSession } from "../../api/session";
import { Folded } from "../../frame/Folded";
import { Head } from "../../frame/Head";
import { Opener } from "../../frame/Opener";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Actor } from "../../values/Actor";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { isDay, lastDay, nextDay, startOfDay } from "../../values/instants";
import { List } from "../../values/List";
import { cell, Table } from "../../values/Table";
import { changes, readEntries } from "./auditChanges";
import styles from "./settings.module.css";

/** Shows the audit log: the search, and the entries with their actors. */
export function AuditLog() {
  return (
    <>
      <Head part title="Audit log">
        All changes, with actor, time, and values before and after. Refused requests and all exports of events are listed too.
      </Head>
      <Allowed to="api_keys:manage">
        <Filters />
        <Entries />
      </Allowed>
    </>
  );
}

const here = "/frame/settings/audit-log";

const fields = [
  ["actor", "Actor", "key_12"],
  ["action", "Action", "api_key."],
  ["resource", "Resource", "mtr_7"],
  ["request", "Request", ""],
] as const;

const days = [
  ["from", "From"],
  ["until", "Until"],
] as const;

type Asked = Partial<Record<(typeof fields)[number][0] | (typeof days)[number][0], string>>;

/** Shows the fields of the search. Once the user starts the search, the address contains it. */
function Filters() {
  const { entry: _, page: __, ...asked } = useSearch({ from: here });
  return <SearchFields key={JSON.stringify(asked)} asked={asked} />;
}

/** Shows the fields of the search, and writes them to the address. */
function SearchFields({ asked }: { asked: Asked }) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState(asked);
  const show = (event: FormEvent) => {
    event.preventDefault();
    const search = Object.fromEntries(Object.entries(typed).map(([name, text]) => [name, text.trim()] as const).filter(([, text]) => text !== ""));
    void navigate({ to: "/settings/audit-log", search });
  };
  const change = (name: keyof Asked) => (event: { currentTarget: HTMLInputElement }) => setTyped({ ...typed, [name]: event.currentTarget.value });
  return (
    <Folded opener="Search the audit log" asked={Object.keys(asked).length > 0}>
      <form className={styles.filters} role="search" aria-label="The audit log" onSubmit={show}>
        {fields.map(([name, label, placeholder]) => (
          <TextInput key={name} label={label} placeholder={placeholder} maxLength={128} value={typed[name] ?? ""} onChange={change(name)} />
        ))}
        {days.map(([name, label]) => (
          <TextInput key={name} label={label} type="date" max={lastDay} value={typed[name] ?? ""} onChange={change(name)} />
        ))}
        <div className={styles.verbs}>
          <Button type="submit" variant="default" size="sm">
            Show
          </Button>
          {Object.keys(asked).length > 0 && (
            <Button variant="subtle" size="sm" onClick={() => void navigate({ to: "/settings/audit-log", search: {} })}>
              Show all
            </Button>
          )}
        </div>
      </form>
    </Folded>
  );
}

const columns = [{ title: "When" }, { title: "Action" }, { title: "Resource" }, { title: "Actor" }];

/** Lists the entries that match the search in the address. */
function Entries() {
  const { tenant } = useSession();
  const { entry: opened, page, ...asked } = useSearch({ from: here });
  const query = useQuery({
    queryKey: ["audit-log", asked, page],
    async queryFn({ signal }) {
      const { actor, action, resource, request, from, until } = asked;
      const query = {
        page_size: 25,
        ...(actor && { actor }),
        ...(action && { action }),
        ...(resource && { resource }),
        ...(request && { request_id: request }),
        ...(isDay(from) && { start: startOfDay(from, tenant.timezone) }),
        ...(isDay(until) && { end: startOfDay(nextDay(until), tenant.timezone) }),
        ...(page && { page_token: page }),
      };
      return readEntries(await answer(api.GET("/v1/audit-log", { params: { query }, parseAs: "text", signal })));
    },
    placeholderData: keepPreviousData,
  });
  return (
    <List what="The audit log" columns={columns} query={query} page={page} empty={<None filtered={Object.keys(asked).length > 0} />}>
      {(entry) => <Row key={entry.id} entry={entry} opened={entry.id === opened} />}
    </List>
  );
}

function None({ filtered }: { filtered: boolean }) {
  if (!filtered) return <Empty title="No change yet">The first change will be listed here.</Empty>;
  return (
    <Empty title="No matching entry">
      <p className="muted">An action may be given by its first letters. Actor and resource must be complete ids.</p>
    </Empty>
  );
}

/** Shows an entry and, if it is opened, its details. */
function Row({ entry, opened }: { entry: Schema<"AuditEntry">; opened: boolean }) {
  return (
    <>
      <tr>
        <td>
          <Instant at={entry.at} />
        </td>
        <td className={cell.main}>
          <Opener name="entry" value={entry.id} open={opened}>
            {entry.action}
          </Opener>
        </td>
        <td>
          <Identifier>{entry.resource}</Identifier>
        </td>
        <td>
          <Actor is={entry.actor} />
        </td>
      </tr>
      {opened && (
        <tr>
          <td colSpan={columns.length} className={cell.whole}>
            <Opened entry={entry} />
          </td>
        </tr>
      )}
    </>
  );
}

const changed = [{ title: "Field" }, { title: "Before" }, { title: "After" }];

/** Shows the details of an entry, and the changed fields before and after. */
function Opened({ entry }: { entry: Schema<"AuditEntry"> }) {
  const found = changes(entry.before, entry.after);
  const facts = [
    ["Reason", entry.reason],
    ["Actor", entry.actor],
    ["IP address", entry.address],
    ["Request", entry.request_id],
    ["Entry", entry.id],
  ] as const;
  return (
    <div className={styles.opened}>
      {found.length > 0 && (
        <Table caption={`Changes by ${entry.action}`} columns={changed}>
          <tbody>
            {found.map(({ field, before, after }) => (
              <tr key={field}>
                <td className="mono">{field}</td>
                <Side of={before} title="before" />
                <Side of={after} title="after" />
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      <dl className={styles.facts}>
        {facts
          .filter(([, value]) => value !== "")
          .map(([name, value]) => (
            <Fragment key={name}>
              <dt>{name}</dt>
              <dd>{name === "Reason" ? value : <Identifier>{value}</Identifier>}</dd>
            </Fragment>
          ))}
      </dl>
    </div>
  );
}

/** Shows a field's value before or after the change. */
function Side({ of, title }: { of: string | undefined; title: string }) {
  return (
    <td className={styles.side} data-title={title}>
      {of ?? <span className="muted">absent</span>}
    </td>
  );
}
