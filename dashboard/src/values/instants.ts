/** Returns a date or a time of day as text, in a tenant's timezone. */
export function written(instant: string, timezone: string, how: "date" | "day" | "month" | "minute" | "second"): string {
  const forms: Record<typeof how, Intl.DateTimeFormatOptions> = {
    date: { day: "numeric", month: "short", year: "numeric" },
    month: { month: "long", year: "numeric" },
    day: { weekday: "short", day: "2-digit", month: "short" },
    second: { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
    minute: { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  };
  return new Intl.DateTimeFormat("en-GB", { ...forms[how], timeZone: timezone }).format(new Date(instant));
}

/** Returns the days of a half-open range between two midnights, such as 1 – 30 Nov 2026. */
export function range(start: string, end: string, timezone: string): string {
  const last = new Date(new Date(end).getTime() - 1);
  const form = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: timezone });
  return form.formatRange(new Date(start), last).replace(/\s*–\s*/, " – "); // browsers put different spaces around the dash
}

/** Returns a timezone's offset from UTC at an instant, such as UTC+1. */
export function offset(timezone: string, at: Date): string {
  const parts = new Intl.DateTimeFormat("en", { timeZone: timezone, timeZoneName: "shortOffset" }).formatToParts(at);
  const name = parts.find((part) => part.type === "timeZoneName")?.value ?? "GMT";
  return name.replace("GMT", "UTC").replace(/\+0$/, "");
}

/** Returns the day of an instant, such as 2026-12-01. */
export function day(instant: string | Date, timezone: string): string {
  return new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeZone: timezone }).format(new Date(instant));
}

/** Reports whether a text is a day, such as 2026-12-01. */
export const isDay = (text: string | undefined): text is string => text !== undefined && /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text));

/** The last day that a date field accepts. Browsers also offer years of six digits, which the API does not accept. */
export const lastDay = "9999-12-31";

/** Returns the day that is the given number of days after a day. */
export function nextDay(of: string, days = 1): string {
  const at = new Date(`${of}T00:00:00Z`);
  at.setUTCDate(at.getUTCDate() + days);
  return at.toISOString().slice(0, 10);
}

/** Returns the instant at which a day, such as 2026-12-01, begins in a timezone. */
export const startOfDay = (day: string, timezone: string) => instantOf(`${day}T00:00`, timezone);

/** Returns the instant at which a timezone's clocks show a minute, such as 2026-12-01T09:30. */
export function instantOf(minute: string, timezone: string): string {
  const wanted = Date.parse(`${minute}:00Z`);
  const clock = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone: timezone });
  const there = (instant: number) => Date.parse(`${clock.format(instant).replace(" ", "T")}Z`);
  // The offset at the first guess may differ from the offset at the result.
  const guess = wanted - (there(wanted) - wanted);
  const start = guess - (there(guess) - wanted);
  return new Date(start).toISOString();
}

/** The seconds that the API's clock may be ahead of the browser's. A recent instant must not appear as a future one. */
const skew = 5;

const units: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_557_600],
  ["month", 2_629_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** Returns an instant relative to now, such as 3 hours ago, in the largest unit that fits at least once. */
export function fromNow(instant: string, now: Date): string {
  const seconds = (new Date(instant).getTime() - now.getTime()) / 1000;
  const [unit, length] = units.find(([, length]) => Math.abs(seconds) >= length) ?? ["second", 1];
  if (unit === "second") return seconds > skew ? "in less than a minute" : "just now";
  return new Intl.RelativeTimeFormat("en").format(Math.trunc(seconds / length), unit);
}
