import { useEffect, useRef, type FocusEvent, type FormEvent, type RefObject } from "react";

/** The loss of data that the user causes by leaving: the texts of the question that asks for confirmation. */
export interface Loss {
  title: string;
  says: string;
  stay: string;
  leave: string;
}

interface Place {
  element: RefObject<Element | null>;
  loss: () => Loss | undefined;
}

const places = new Set<Place>();

/** Returns the loss that the user would cause by leaving a part of the page, or the page. */
export function lossOf(part: Element = document.documentElement): Loss | undefined {
  for (const { element, loss } of places) {
    const found = element.current && part.contains(element.current) ? loss() : undefined;
    if (found) return found;
  }
  return undefined;
}

/** Asks the user before they leave an element, as long as leaving it causes a loss. */
export function useLoss(element: RefObject<Element | null>, loss: () => Loss | undefined): void {
  const latest = useRef(loss);
  latest.current = loss;
  useEffect(() => {
    const place = { element, loss: () => latest.current() };
    places.add(place);
    return () => void places.delete(place);
  }, [element]);
}

/** The loss of typed text. */
export const typedLoss: Loss = { title: "Discard your changes?", says: "Your changes are not saved.", stay: "Keep editing", leave: "Discard" };

type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

/** Reports whether a control is a checkbox or a radio button. */
const hasState = (control: Control): control is HTMLInputElement => control.type === "checkbox" || control.type === "radio";
/** Returns the user's input in a control as text. */
const valueOf = (control: Control) => (hasState(control) ? String(control.checked) : control.value);

/** The selector of the parts of the page with values that are never saved, for example values to try something out. */
const scratch = "[data-scratch]";

/**
 * Asks the user before they leave a form in which a value differs from the saved one. Returns the form's handlers.
 * saved is the number of times that the form was saved.
 */
export function useTyped(form: RefObject<HTMLFormElement | null>, saved: number | undefined) {
  /** The values before the user changed them. undefined: the value is unknown. */
  const before = useRef(new Map<Control, string | undefined>());
  useEffect(() => before.current.clear(), [saved]);
  useLoss(form, () => ([...before.current].some(([control, value]) => control.isConnected && valueOf(control) !== value) ? typedLoss : undefined));
  const know = (control: Control, value: string | undefined) => {
    if (form.current?.contains(control) && !control.closest(scratch) && !before.current.has(control)) before.current.set(control, value);
  };
  return {
    onFocus({ target }: FocusEvent) {
      if (target.matches("input, select, textarea")) know(target as Control, valueOf(target as Control));
    },
    onChange({ target }: FormEvent) {
      const control = target as Control;
      know(control, hasState(control) ? String(!control.checked) : undefined); // Safari does not focus what is clicked
    },
  };
}
