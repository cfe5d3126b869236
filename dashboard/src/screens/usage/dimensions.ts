/** A dimension by which usage can be broken down. */
export interface Dimension {
  /** The name in the API's parameter by. */
  sent: string;
  title: string;
  /** The property of the events; absent for customer and plan. */
  property?: string;
}

const customer: Dimension = { sent: "customer", title: "Customer" };
const plan: Dimension = { sent: "plan", title: "Plan" };

/** The name in an address that selects no dimension. */
export const none = "none";

const prefix = "property.";

/** Returns the dimensions of a meter that groups by some properties. */
export function dimensionsOf(groupBy: readonly string[]): Dimension[] {
  const sent = (property: string) => (["customer", "plan", none].includes(property) || property.startsWith(prefix) ? prefix + property : property);
  return [customer, plan, ...groupBy.map((property) => ({ sent: sent(property), title: property, property }))];
}

/** Returns the names of dimensions as one value of an address. Commas and percent signs in names are escaped. */
export const listed = (sent: readonly string[]) => sent.map((name) => name.replace(/[%,]/g, encodeURIComponent)).join(",");

/** Returns the names of dimensions from the value of an address. */
export const unlisted = (text = "") => text.split(",").map((name) => name.replace(/%25|%2C/g, decodeURIComponent));
