import { useRef, useState } from "react";
import { useAct } from "./useAct";

type After<Input, Output> = Parameters<typeof useAct<Input, Output>>[1];

/** A request to save a form: the values and the user's edits among them. */
interface Sent<Values> {
  typed: Values;
  edits: Partial<Values>;
  /** The token, if the API required a confirmation and the user has confirmed the change. */
  confirm: string | undefined;
}

/** Returns the edits that differ from the values of the same fields in others. */
function editsUnlike<Values>(others: Partial<Values>, edits: Partial<Values>): Partial<Values> {
  return Object.fromEntries(Object.entries(edits).filter(([field, value]) => JSON.stringify(value) !== JSON.stringify(others[field as keyof Values]))) as Partial<Values>;
}

/**
 * Returns the values of a form, which are the saved values with the user's edits, and the action that saves them. When
 * the saved values are read again, for example after another user's change, the fields with edits keep them. Edits made
 * during a save stay.
 */
export function useEdits<Values extends object, Output>(saved: Values, save: (typed: Values, confirm: string | undefined) => Promise<Output>, after: After<Sent<Values>, Output>) {
  const [edits, setEdits] = useState<Partial<Values>>({});
  const isSaving = useRef(false); // true at once, unlike isPending
  const typed = { ...saved, ...edits };
  const act = useAct(({ typed, confirm }: Sent<Values>) => save(typed, confirm), after);
  return {
    typed,
    change(part: Partial<Values>) {
      const keepsAll = isSaving.current; // the saved values are about to change
      setEdits((latest) => (keepsAll ? { ...latest, ...part } : editsUnlike(saved, { ...latest, ...part })));
    },
    save: {
      ...act,
      mutate(confirm?: string) {
        isSaving.current = true;
        act.mutate(
          { typed, edits, confirm },
          {
            // The edits stay until the saved values are read again: no field shows its previous value in between.
            onSuccess: (_, sent) => setEdits((latest) => editsUnlike(sent.edits, latest)),
            onSettled: () => void (isSaving.current = false),
          },
        );
      },
    },
  };
}
