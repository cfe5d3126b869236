import { useEffect, useRef, useState } from "react";

/**
 * Refuses a value that breaks a rule before it is sent: the form is not submitted. The field shows the reason once
 * the user has left the field or pressed the button. Returns the field's properties.
 */
export function useRule<Control extends HTMLInputElement | HTMLTextAreaElement>(wrong: string | undefined, refused: string | undefined) {
  const ref = useRef<Control>(null);
  const [left, setLeft] = useState(false);
  useEffect(() => ref.current?.setCustomValidity(wrong ?? ""), [wrong]);
  return {
    ref,
    error: (left && wrong) || refused,
    onBlur: () => setLeft(true),
    onInvalid(event: { preventDefault(): void; currentTarget: Control }) {
      if (wrong === undefined) return; // the value breaks a rule of the browser, which shows its own message
      event.preventDefault();
      setLeft(true);
      const { currentTarget: control } = event;
      const first = [...(control.form?.elements ?? [])].find((element) => !(element as Control).validity.valid);
      if (first === control) control.focus();
    },
  };
}
