import { instantOf } from "../../values/instants";

/** What the address of the events asks for. Times are those of the tenant's clocks. */
export interface Search {
  customer?: string;
  type?: string;
  key?: string;
  /** Such as 2026-11-30T09:30, or a day. */
  from?: string;
  /** Which is not searched itself. */
  until?: string;
  paused?: string;
  page?: string;
}

export const pageSize = 50;

const minute = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}$/;

/** The instant that an address names, if it does. */
function instant(text: string | undefined, timezone: string): string | undefined {
  const written = text?.length === 10 ? `${text}T00:00` : text;
  if (written === undefined || !minute.test(written) || Number.isNaN(Date.parse(`${written}:00Z`))) return undefined;
  return instantOf(written, timezone);
}

/** The query that answers an address. What is no time is left out. */
export function asked({ customer, type, key, from, until, page }: Search, timezone: string) {
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

/** Whether new events may be shown as they come: not on a later page, of a time that is over, or in a search of all events. */
export const hasTail = ({ page, until, key, from }: Search): boolean => !page && !until && !(key && !from);

export const isLive = (search: Search): boolean => hasTail(search) && !search.paused;
