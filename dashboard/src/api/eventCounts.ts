import { queryOptions } from "@tanstack/react-query";
import { day, nextDay, startOfDay } from "../values/instants";
import { answer, api, type Schema } from "./client";
import { uncountedCodes } from "./uncountedEvents";

type Uncounted = (typeof uncountedCodes)[number];

export type Outcome = "accepted" | "duplicates" | "conflicts" | "rejected" | Uncounted;

export const isUncounted = (outcome: Outcome): outcome is Uncounted => uncountedCodes.some((code) => code === outcome);

/** The events with an outcome, of all windows or of one. */
export function eventsOf(counts: Omit<Schema<"EventCounts">, "windows"> | Schema<"EventCounts">["windows"][number] | undefined, outcome: Outcome): number {
  if (isUncounted(outcome)) return counts?.uncounted?.find(({ code }) => code === outcome)?.count ?? 0;
  return counts?.[outcome] ?? 0;
}

/** What requests with events were answered on so many days, of which today is the last. */
export const eventCounts = (days: number, timezone: string) =>
  queryOptions({
    queryKey: ["event counts", days],
    async queryFn({ signal }) {
      const start = startOfDay(nextDay(day(new Date(), timezone), 1 - days), timezone);
      const granularity = days === 1 ? "hour" : "day";
      return answer(api.GET("/v1/events/counts", { params: { query: { start, granularity } }, signal }));
    },
    refetchInterval: 30_000,
  });

/** The counts of each day, undefined for a day without any; today is the last. */
export function byDay(counts: Schema<"EventCounts">, days: number, timezone: string, now: Date) {
  const windows = new Map(counts.windows.map((window) => [day(window.start, timezone), window]));
  const today = day(now, timezone);
  return Array.from({ length: days }, (_, index) => windows.get(nextDay(today, index + 1 - days)));
}

/** 0.02 %: how much of all events it is, in two digits that say something. */
export function share(part: number, all: number): string {
  if (all === 0) return "";
  return new Intl.NumberFormat("en-GB", { style: "percent", maximumSignificantDigits: 2 }).format(part / all).replace("%", " %");
}
