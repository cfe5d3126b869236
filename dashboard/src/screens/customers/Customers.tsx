import { TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { answer, api } from "../../api/client";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import styles from "./Customers.module.css";
import { FirstEvent } from "../../states/FirstEvent";

const columns = [{ title: "Customer" }, { title: "External ID" }, { title: "At the provider" }, { title: "Since", number: true }];

/** Lists the customers that match the search. */
export function Customers() {
  return (
    <>
      <Head title="Customers" action={<Search />} />
      <Allowed to="customers:read">
        <Found />
      </Allowed>
    </>
  );
}

/**
 * Writes the search to the address, so that users can share the results. When the user goes back in the browser, the
 * field shows the search of the address again.
 */
function Search() {
  const navigate = useNavigate();
  const { search = "" } = useSearch({ from: "/frame/customers" });
  const [typed, setTyped] = useState(search);
  const sent = useRef(search);
  useEffect(() => {
    if (search !== sent.current) setTyped(search);
    sent.current = search;
  }, [search]);
  const find = useDebouncedCallback((text: string) => {
    sent.current = text;
    void navigate({ to: "/customers", search: text === "" ? {} : { search: text }, replace: true });
  }, 250);
  return (
    <TextInput
      className={styles.search}
      type="search"
      aria-label="Search customers"
      placeholder="Name or ID"
      value={typed}
      onChange={(event) => {
        setTyped(event.currentTarget.value);
        find(event.currentTarget.value.trim());
      }}
    />
  );
}

/** Lists the customers that match the search in the address. */
function Found() {
  const { search, page } = useSearch({ from: "/frame/customers" });
  const query = useQuery({
    queryKey: ["customers", { search, page }],
    queryFn: ({ signal }) => {
      const query = { page_size: 25, ...(search && { search }), ...(page && { page_token: page }) };
      return answer(api.GET("/v1/customers", { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });
  return (
    <List what="The customers" columns={columns} query={query} page={page} empty={search ? <NoMatch search={search} /> : <NoCustomers />}>
      {(customer) => (
        <tr key={customer.id}>
          <td className={cell.main}>
            <Link to="/customers/$customer/usage" params={{ customer: customer.id }}>
              {customer.name || customer.external_id}
            </Link>
          </td>
          <td>
            <Identifier>{customer.external_id}</Identifier>
          </td>
          <td>{customer.billing_provider_id ? <Identifier>{customer.billing_provider_id}</Identifier> : <span className="muted">not linked</span>}</td>
          <td className={cell.extra}>
            <Instant at={customer.created_at} as="date" />
          </td>
        </tr>
      )}
    </List>
  );
}

function NoMatch({ search }: { search: string }) {
  return (
    <Empty title={`No customer has “${search}” in its name or an ID`}>
      <p className="muted">Archived customers are not searched.</p>
    </Empty>
  );
}

function NoCustomers() {
  return (
    <Empty title="No customers yet">
      <p>The first event that names a customer creates it.</p>
      <FirstEvent customer="acme" />
    </Empty>
  );
}
