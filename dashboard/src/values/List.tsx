import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Failed } from "../states/Failed";
import { LoadingRows } from "../states/Loading";
import { Pages } from "./Pages";
import { Table, type Column } from "./Table";

interface Props<Item> {
  /** What it lists, as "The meters". */
  what: string;
  columns: Column[];
  query: Pick<UseQueryResult<{ data: Item[]; next_page_token: string | null }>, "data" | "error" | "isPlaceholderData" | "refetch">;
  /** The page that the address has. */
  page?: string | undefined;
  /** In place of the table where there is nothing. */
  empty: ReactNode;
  /** What the way to the next page says. */
  further?: string | undefined;
  /** How many rows are awaited. */
  rows?: number;
  /** The row, or rows, of an item. */
  children: (item: Item) => ReactNode;
}

/** A list of the API: its rows, or why there are none. Rows stay when they cannot be read again: a form may be open in one. */
export function List<Item>({ what, columns, query, page, empty, further, rows, children }: Props<Item>) {
  const { data, error, isPlaceholderData, refetch } = query;
  if (error && !data) return <Failed what={what} error={error} retry={() => void refetch()} />;
  // A page in the middle may be empty, of a search that goes on.
  const nothing = data?.data.length === 0 && (!page || data.next_page_token !== null);
  return (
    <>
      {nothing ? (
        empty
      ) : (
        <Table caption={what} columns={columns} busy={!data || isPlaceholderData}>
          {data ? <tbody>{data.data.map(children)}</tbody> : <LoadingRows columns={columns.length} rows={rows} />}
        </Table>
      )}
      {data && <Pages page={page} next={data.next_page_token} further={further} />}
    </>
  );
}
