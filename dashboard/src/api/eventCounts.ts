import { queryOptions } from "@tanstack/react-query";
import { day, nextDay, startOfDay } from "../values/instants";
import { answer, api, type Schema } from "./client";
import { uncountedCodes } from "./uncountedEvents";

type Uncounted = (typeof uncountedCodes)[number];

export type Outcome = "accepted" | "duplicates" | "conflicts" | "rejected" | Uncounted;

/** Reports whether an outcome is the code of events that a meter could not count. */
export const isUncounted = (outcome: Outcome): outcome is Uncounted => uncountedCodes.some((code) => code === outcome);

/** Returns the number of events with an outcome, in all windows or in one. */
export function eventsOf(counts: Omit<Schema<"EventCounts">, "windows"> | Schema<"EventCounts">["windows"][number] | undefined, outcome: Outcome): number {
  if (isUncounted(outcome)) return counts?.uncounted?.find(({ code }) => code === outcome)?.count ?? 0;
  return counts?.[outcome] ?? 0;
}

/** Queries the number of events by outcome for the given number of days up to today. One day is counted by hour. */
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

/** Returns the counts of each day, undefined for a day without counts. Today is the last day. */
export function byDay(counts: Schema<"EventCounts">, days: number, timezone: string, now: Date) {
  const windows = new Map(counts.windows.map((window) => [day(window.start, timezone), window]));
  const today = day(now, timezone);
  return Array.from({ length: days }, (_, index) => windows.get(nextDay(today, index + 1 - days)));
}

/** Returns a part of all events as a percentage with at most two significant digits, such as 0.02 %. */
export function percentOf(part: number, all: number): string {
  if (all === 0) return "";
  return new Intl.NumberFormat("en-GB", { style: "percent", maximumSignificantDigits: 2 }).format(part / all).replace("%", " %");
}
