/** Returns the index, from 0 to last, to which a navigation key moves from `at`, or undefined for other keys. */
export function indexAfterKey(key: string, at: number | null, last: number): number | undefined {
  const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -last, End: last };
  const step = steps[key];
  if (step === undefined) return undefined;
  return Math.max(0, Math.min(last, (at ?? (step > 0 ? -1 : last + 1)) + step));
}
