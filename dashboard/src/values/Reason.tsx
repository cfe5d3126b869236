import { capitalize, inWords } from "../api/words";

interface Props {
  of: { message: string; next_step?: string; meter_slug?: string };
  /** The text before the message, on the same line. */
  prefix?: string;
}

/** Shows the message of a reason and, below it, the next step if there is one. */
export function Reason({ of: { message, next_step: nextStep, meter_slug: meter = "" }, prefix = "" }: Props) {
  const words = inWords(message);
  // A message that begins with the meter's slug keeps the slug unchanged.
  const isUnchanged = prefix !== "" || message.startsWith(`${meter}:`);
  return (
    <>
      <p>{`${prefix}${isUnchanged ? words : capitalize(words)}`}</p>
      {nextStep && <p className="muted small">{inWords(nextStep)}</p>}
    </>
  );
}
