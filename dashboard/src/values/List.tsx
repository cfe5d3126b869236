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
  query: UseQueryResult<{ data: Item[]; next_page_token: string | null }>;
  /** The page that the address has. */
  page?: string | undefined;
  /** In place of the table where there is nothing. */
  empty: ReactNode;
  /** How many rows are awaited. */
  rows?: number;
  /** The row, or rows, of an item. */
  children: (item: Item) => ReactNode;
}

/** A list of the API's: its rows, or why there are none. */
export function List<Item>({ what, columns, query, page, empty, rows, children }: Props<Item>) {
  const { data, error, isPlaceholderData, refetch } = query;
  if (error) return <Failed what={what} error={error} retry={() => void refetch()} />;
  if (data?.data.length === 0 && !page) return empty;
  return (
    <>
      <Table caption={what} columns={columns} busy={!data || isPlaceholderData}>
        {data ? <tbody>{data.data.map(children)}</tbody> : <LoadingRows columns={columns.length} rows={rows} />}
      </Table>
      {data && <Pages page={page} next={data.next_page_token} />}
    </>
  );
}
