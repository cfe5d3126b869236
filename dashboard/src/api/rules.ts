import type { Schema } from "@odometer-metering/client";

type Broken = Schema<"FieldProblem">;

// The API's schema validation returns messages with the keywords of JSON Schema. For the user, each message is
// replaced by words that follow the field's name in a sentence. found is the first group of the pattern.
const rules: [RegExp, (found: string) => string][] = [
  [/^expected string to match pattern \^\[a-z0-9\]\[a-z0-9_-\]\*\$$/, () => "may contain only lower-case letters, digits, - and _, and must begin with a letter or a digit"],
  [/^expected string to match pattern /, () => "does not have the required format"],
  [/^expected length >= 1$/, () => "is missing"],
  [/^expected length >= (\d+)$/, (least) => `needs at least ${least} characters`],
  [/^expected length <= (\d+)$/, (most) => `may have at most ${most} characters`],
  [/^expected number >= (.+)$/, (least) => `must be ${least} or more`],
  [/^expected number > (.+)$/, (limit) => `must be more than ${limit}`],
  [/^expected number <= (.+)$/, (most) => `must be ${most} or less`],
  [/^expected number < (.+)$/, (limit) => `must be less than ${limit}`],
  [/^expected array length >= 1$/, () => "needs at least one entry"],
  [/^expected array length >= (\d+)$/, (least) => `needs at least ${least} entries`],
  [/^expected array length <= (\d+)$/, (most) => `may have at most ${most} entries`],
  [/^expected array items to be unique$/, () => "must not contain the same entry twice"],
  [/^expected value to be one of "(.+)"$/, (values) => `must be one of ${values}`],
  [/^expected integer$/, () => "must be a whole number"],
  [/^expected number$/, () => "must be a number"],
  [/^expected string$/, () => "must be text"],
  [/^expected string to be RFC 3339 date-time/, () => "must be a date and a time"],
  [/^expected string to be RFC 3339 date/, () => "must be a day, such as 2026-12-01"],
  [/^expected string to be RFC 5322 email/, () => "must be an e-mail address"],
  [/^expected string to be RFC 3986 uri/, () => "must be an address, such as https://example.com"],
  [/^unexpected property$/, () => "is not a known field"],
];

const absent = /^expected required property (\S+) to be present$/;

/** Returns a broken rule in words for the user, at the field that has to change. */
export function plainRule(broken: Broken): Broken {
  const [, missing] = absent.exec(broken.message) ?? [];
  if (missing !== undefined) return { ...broken, location: `${broken.location}.${missing}`, message: "is missing" };
  for (const [rule, words] of rules) {
    const found = rule.exec(broken.message);
    if (found) return { ...broken, message: words(found[1] ?? "") };
  }
  return { ...broken, message: broken.message.replace(/\bprices\[(\d+)\]/g, (_, index: string) => priceName(index)) };
}

/** Returns the form's name of a price by dimension from its index in the API. */
export const priceName = (index: string) => `price ${Number(index) + 1}`;
