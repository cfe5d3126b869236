/** The values of each property that a breakdown selects, in the syntax of the API's filters. */
export type Filtered = { [property: string]: string[] };

/** Returns the filters of an address. Filters by properties that the meter lacks are skipped. */
export function filtersOf(text = "", properties: readonly string[]): Filtered {
  const filters: Filtered = {};
  for (const [property, value] of new URLSearchParams(text)) {
    if (properties.includes(property)) filters[property] = [...(filters[property] ?? []), value];
  }
  return filters;
}

/** Returns filters as the text of an address, or undefined if there are none. */
export function filterAddress(filters: Filtered): string | undefined {
  const pairs = Object.entries(filters).flatMap(([property, values]) => values.map((value) => [property, value]));
  return String(new URLSearchParams(pairs)) || undefined;
}
