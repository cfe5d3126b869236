/** A mapping as it is written: a line each, name and value. */
export function writtenMapping(mapping: Record<string, string> = {}): string {
  return Object.entries(mapping)
    .map(([name, value]) => `${name} ${value}`)
    .join("\n");
}

/** The mapping that was written. A line without a value has an empty one, which the API refuses by name. */
export function mappingOf(written: string): Record<string, string> {
  const lines = written.split("\n").map((line) => line.trim());
  return Object.fromEntries(lines.filter((line) => line !== "").map((line) => line.split(/[\s=:]+/, 2)).map(([name = "", value = ""]) => [name, value]));
}
