import { queryOptions } from "@tanstack/react-query";
import { answer, api, exactAnswer, type Schema } from "./client";

/** A query of GET /v1/usage/breakdown, without the parameters of its pages. */
export interface BreakdownQuery {
  meter: string;
  by?: string[];
  granularity?: "hour" | "day" | "week" | "month";
  start?: string;
  end?: string;
  limit?: number;
  order?: "value" | "key";
  /** The values of each property, in the syntax of the API's filters. */
  filters?: { [property: string]: string[] };
}

export type BreakdownRow = Schema<"BreakdownRow">;

const perPage = 100;
const mostPerPage = 10_000;
const mostPages = 20;

/** Queries a page of the usage of all customers. A page is reused for a minute, because the API reads all customers. */
export const breakdown = (query: BreakdownQuery, page?: string) =>
  queryOptions({
    queryKey: ["breakdown", query, page],
    queryFn: ({ signal }) => readPage({ ...query, page_size: perPage, ...(page && { page_token: page }) }, signal),
    staleTime: 60_000,
  });

type PageOf = BreakdownQuery & { page_size: number; page_token?: string; format?: "csv" };

/** Requests a breakdown of usage. The answer is text: JSON or, if the query asks for that format, CSV. */
const request = (query: PageOf, signal?: AbortSignal) =>
  api.GET("/v1/usage/breakdown", { params: { query: query as never }, querySerializer, parseAs: "text", ...(signal && { signal }) });

/** Reads one page of a breakdown with exact numbers. */
const readPage = (query: PageOf, signal: AbortSignal): Promise<Schema<"BreakdownResult">> => exactAnswer(request(query, signal) as never);

/** Writes a query as parameters. A parameter is repeated for each of its values. */
function querySerializer(sent: object): string {
  const { filters = {}, ...query } = sent as BreakdownQuery;
  const parameters = new URLSearchParams();
  const add = (name: string, values: unknown) => [values].flat().forEach((value) => parameters.append(name, String(value)));
  for (const [name, values] of Object.entries(query)) add(name, values);
  for (const [property, values] of Object.entries(filters)) add(`filter.${property}`, values);
  return String(parameters);
}

/** Returns the rows of a query, or null if they do not fit on one page of 10,000 rows and 1 MiB. */
export async function breakdownRows(query: BreakdownQuery, signal: AbortSignal): Promise<BreakdownRow[] | null> {
  const page = await readPage({ ...query, page_size: mostPerPage }, signal);
  return page.has_more ? null : page.data;
}

export interface BreakdownFile {
  text: string;
  /** Whether the file contains all rows. */
  complete: boolean;
}

/** Returns the rows of a query as CSV: up to 20 pages of the API as one file. */
export async function breakdownFile(query: BreakdownQuery): Promise<BreakdownFile> {
  let [text, token] = ["", ""];
  for (let pages = 0; pages < mostPages; pages++) {
    const part: PageOf = { ...query, format: "csv", page_size: mostPerPage, ...(token && { page_token: token }) };
    const exchange = request(part);
    const page = await answer<string>(exchange as never);
    text += pages === 0 ? page : page.replace(header, "");
    token = nextToken((await exchange).response);
    if (token === "") return { text, complete: true };
  }
  return { text, complete: false };
}

/** The first line of a CSV. A line break in quotes does not end it. */
const header = /^(?:[^"\n]|"[^"]*")*\n/;

/** Returns the token of the next page from the Link header of a file, or "" if there is no next page. */
function nextToken(response: Response): string {
  const [, next] = /<([^>]*)>; rel="next"/.exec(response.headers.get("Link") ?? "") ?? [];
  return next === undefined ? "" : (new URL(next, location.origin).searchParams.get("page_token") ?? "");
}
