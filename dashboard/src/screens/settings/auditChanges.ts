import { isLosslessNumber, parse, stringify } from "lossless-json";
import type { Schema } from "../../api/client";

export type Entries = Schema<"ListAuditEntry">;

/** Parses a page of the log. The numbers of before and after keep every digit. */
export const readEntries = (text: string) => parse(text) as Entries;

export interface Change {
  field: string;
  /** The previous value. Absent if the field did not exist. */
  before?: string;
  after?: string;
}

type Fields = Record<string, unknown> | undefined;

/** Reports whether a value is an object with at least one field. */
const isFields = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !isLosslessNumber(value) && Object.keys(value).length > 0;

/** Returns a change for each changed field. A nested field has the names of both fields, as in hold.enabled. */
export function changes(before: Fields, after: Fields, within = ""): Change[] {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return names.flatMap((name) => {
    const [was, is] = [before?.[name], after?.[name]];
    const field = within + name;
    if ((isFields(was) || isFields(is)) && [was, is].every((side) => side === undefined || side === null || isFields(side))) {
      return changes(was as Fields, is as Fields, `${field}.`);
    }
    return [{ field, ...(was !== undefined && { before: written(was) }), ...(is !== undefined && { after: written(is) }) }];
  });
}

/** Returns a value as text. */
function written(value: unknown): string {
  if (value === null) return "none";
  if (typeof value === "string") return value === "" ? "empty" : value;
  return stringify(value) ?? "";
}
