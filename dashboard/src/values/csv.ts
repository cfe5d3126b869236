/** Returns a table as CSV text, in the format of RFC 4180. */
export function csv(rows: string[][]): string {
  return rows.map((row) => row.map((cell) => quoted(harmless(cell))).join(",") + "\r\n").join("");
}

/** Returns a cell of a CSV file, with quotes if it needs them. */
const quoted = (cell: string) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

const number = /^-?\d+(\.\d+)?$/;

/**
 * Keeps a spreadsheet from running a text as a formula, as the API's own exports do.
 * docs/api/usage.md describes how to remove the guards (https://owasp.org/www-community/attacks/CSV_Injection).
 */
function harmless(cell: string): string {
  if (number.test(cell)) return cell;
  return cell.replace(/(?<=^|[;|\t\r\n])(?=['=+\-@＝＋－＠\t\r\n])/g, "'");
}

/** Saves a text as a file, through the browser. */
export function save(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
