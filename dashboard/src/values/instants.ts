/** How a date or a time of day is written, in a tenant's timezone. */
export function written(instant: string, timezone: string, how: "date" | "day" | "minute"): string {
  const forms: Record<typeof how, Intl.DateTimeFormatOptions> = {
    date: { day: "numeric", month: "short", year: "numeric" },
    day: { weekday: "short", day: "2-digit", month: "short" },
    minute: { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  };
  return new Intl.DateTimeFormat("en-GB", { ...forms[how], timeZone: timezone }).format(new Date(instant));
}

/** 1 – 30 Nov 2026: the days of a half-open range whose ends are days' ends. */
export function range(start: string, end: string, timezone: string): string {
  const last = new Date(new Date(end).getTime() - 1);
  const form = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: timezone });
  return form.formatRange(new Date(start), last).replace(/\s*–\s*/, " – "); // browsers differ in their spaces
}

/** UTC+1: how far a timezone is from UTC at an instant. */
export function offset(timezone: string, at: Date): string {
  const parts = new Intl.DateTimeFormat("en", { timeZone: timezone, timeZoneName: "shortOffset" }).formatToParts(at);
  const name = parts.find((part) => part.type === "timeZoneName")?.value ?? "GMT";
  return name.replace("GMT", "UTC").replace(/\+0$/, "");
}
