import type { Meaning } from "../../values/State";

interface Lifetime {
  revoked_at: string | null;
  expires_at: string | null;
  /** What replaces it, while both are valid. */
  successor_id: string | null;
}

/** Whether a credential is good for anything, and whether it stays so. */
export function stateOf({ revoked_at, expires_at, successor_id }: Lifetime, now: Date): [Meaning, string] {
  if (revoked_at !== null) return ["off", "revoked"];
  if (expires_at !== null && new Date(expires_at) <= now) return ["off", "expired"];
  if (successor_id !== null) return ["waiting", "replaced"];
  return ["good", "valid"];
}

export const ended = (lifetime: Lifetime, now: Date) => stateOf(lifetime, now)[0] === "off";

/** How long something lasts that is made now, by what one chooses. */
export const lengths = [
  { value: "", label: "Never" },
  { value: "7", label: "In 7 days" },
  { value: "30", label: "In 30 days" },
  { value: "90", label: "In 90 days" },
  { value: "365", label: "In 365 days" },
];

export function expiry(days: string, now: Date): { expires_at?: string } {
  return days === "" ? {} : { expires_at: new Date(now.getTime() + Number(days) * 86_400_000).toISOString() };
}

/** For how long what is replaced stays valid, in seconds. */
export const overlaps = [
  { value: "0", label: "At once" },
  { value: "3600", label: "In an hour" },
  { value: "86400", label: "In a day" },
  { value: "604800", label: "In a week" },
];
