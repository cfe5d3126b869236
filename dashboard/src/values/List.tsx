import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Failed } from "../states/Failed";
import { LoadingRows } from "../states/Loading";
import { Pages } from "./Pages";
import { Table, type Column } from "./Table";

interface Props<Item> {
  /** The subject of the list, such as "The meters". */
  what: string;
  columns: Column[];
  query: Pick<UseQueryResult<{ data: Item[]; next_page_token: string | null }>, "data" | "error" | "isPlaceholderData" | "refetch">;
  /** The token of the page, from the address. */
  page?: string | undefined;
  /** The content in place of the table if there are no items. */
  empty: ReactNode;
  /** The text of the link to the next page. */
  further?: string | undefined;
  /** The number of expected rows. */
  rows?: number;
  /** Returns the row or the rows of an item. */
  children: (item: Item) => ReactNode;
}

/**
 * Shows a list of the API: its rows, or the reason why there are none. The rows stay if a later read fails, because
 * a form may be open in a row.
 */
export function List<Item>({ what, columns, query, page, empty, further, rows, children }: Props<Item>) {
  const { data, error, isPlaceholderData, refetch } = query;
  if (error && !data) return <Failed what={what} error={error} retry={() => void refetch()} />;
  // A page of a search may be empty even if further pages follow.
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
