import { instantOf } from "../../values/instants";

/** The parameters in the address of the events. Times are in the tenant's timezone. */
export interface Search {
  customer?: string;
  type?: string;
  key?: string;
  /** The inclusive start: a minute such as 2026-11-30T09:30, or a day. */
  from?: string;
  /** The exclusive end: a minute or a day. */
  until?: string;
  paused?: string;
  page?: string;
}

export const pageSize = 50;

const minute = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}$/;

/** Returns the instant of a time in the address, or undefined if the text is not a valid time. */
function instant(text: string | undefined, timezone: string): string | undefined {
  const written = text?.length === 10 ? `${text}T00:00` : text;
  if (written === undefined || !minute.test(written) || Number.isNaN(Date.parse(`${written}:00Z`))) return undefined;
  return instantOf(written, timezone);
}

/** Returns the API query for an address. Invalid times are skipped. */
export function eventQuery({ customer, type, key, from, until, page }: Search, timezone: string) {
  const [start, end] = [instant(from, timezone), instant(until, timezone)];
  return {
    page_size: pageSize,
    ...(customer && { customer }),
    ...(type && { event_type: type }),
    ...(key && { idempotency_key: key }),
    ...(start && { start }),
    ...(end && { end }),
    ...(page && { page_token: page }),
  };
}

/**
 * Reports whether the list can show new events. Returns false on a later page, with an end, and in a search of all
 * events: one with a key and without a start.
 */
export const hasTail = ({ page, until, key, from }: Search): boolean => !page && !until && !(key && !from);

/** Reports whether the screen reads new events every two seconds. */
export const isLive = (search: Search): boolean => hasTail(search) && !search.paused;
