import type { Meaning } from "../../values/State";

interface Lifetime {
  revoked_at: string | null;
  expires_at: string | null;
  /** The id of the credential that replaces this one. This one stays valid until expires_at. */
  successor_id: string | null;
}

/** Returns the meaning and the word of a credential's state. A replaced credential is valid until it expires. */
export function stateOf({ revoked_at, expires_at, successor_id }: Lifetime, now: Date): [Meaning, string] {
  if (revoked_at !== null) return ["off", "revoked"];
  if (expires_at !== null && new Date(expires_at) <= now) return ["off", "expired"];
  if (successor_id !== null) return ["waiting", "replaced"];
  return ["good", "valid"];
}

/** Reports whether a credential is revoked or expired. */
export const ended = (lifetime: Lifetime, now: Date) => stateOf(lifetime, now)[0] === "off";

/** The choices for the expiry of a new credential, in days from now. */
export const lengths = [
  { value: "", label: "Never" },
  { value: "7", label: "In 7 days" },
  { value: "30", label: "In 30 days" },
  { value: "90", label: "In 90 days" },
  { value: "365", label: "In 365 days" },
];

/** Returns the expiry of a new credential. An empty text means that it never expires. */
export function expiry(days: string, now: Date): { expires_at?: string } {
  return days === "" ? {} : { expires_at: new Date(now.getTime() + Number(days) * 86_400_000).toISOString() };
}

/** The choices for how long a replaced key or secret stays valid, in seconds. */
export const overlaps = [
  { value: "0", label: "At once" },
  { value: "3600", label: "In an hour" },
  { value: "86400", label: "In a day" },
  { value: "604800", label: "In a week" },
];
