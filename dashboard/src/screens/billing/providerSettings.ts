/** Returns the text of a mapping, with one line for each name and its value. */
export function writtenMapping(mapping: Record<string, string> = {}): string {
  return Object.entries(mapping)
    .map(([name, value]) => `${name} ${value}`)
    .join("\n");
}

/** Returns the words of each line that is not empty. Spaces, = and : separate words. */
const linesOf = (written: string): string[][] =>
  written
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .map((line) => line.split(/[\s=:]+/).filter((part) => part !== ""));

/** Returns the mapping of a text. Spaces, `=` or `:` separate a name from its value. */
export function mappingOf(written: string): Record<string, string> {
  return Object.fromEntries(linesOf(written).map(([name = "", value = ""]) => [name, value]));
}

/** Returns an error message if a line is not one name and one value, or if a meter is listed twice. */
export function wrongMapping(written: string): string | undefined {
  const lines = linesOf(written);
  const wrong = lines.find((parts) => parts.length !== 2);
  if (wrong) return `“${wrong.join(" ")}”: write only the meter's slug, a space and the price's id on each line`;
  const names = lines.map(([name]) => name);
  const again = names.find((name, index) => names.indexOf(name) < index);
  return again && `“${again}” is listed twice`;
}
