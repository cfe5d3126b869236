import { useSyncExternalStore } from "react";

// A session may end at any time: after twelve hours, or when its member signs out in another browser or tab.

interface End {
  over: Promise<void>;
  resume: () => void;
}

let end: End | undefined;
const listeners = new Set<() => void>();

/** Sets whether the session has ended, and informs the components that show it. */
function set(next: End | undefined) {
  end = next;
  for (const listener of listeners) listener();
}

/** Records that the session has ended. The promise resolves when sessionGoesOn is called. */
export function sessionEnded(): Promise<void> {
  if (!end) {
    let resume = () => {};
    const over = new Promise<void>((resolve) => (resume = resolve));
    set({ over, resume });
  }
  return end!.over;
}

/** Clears the end of the session: the member has signed in again, or has left the screens for the sign-in. */
export function sessionGoesOn(): void {
  end?.resume();
  set(undefined);
}

/** Reports whether the session of the screens that are shown has ended. */
export function useSessionEnded(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    () => end !== undefined,
  );
}
