import { useEffect } from "react";

/** Sets the window's title, by which the user finds a tab or a bookmark. */
export function useTitle(title: string | undefined): void {
  useEffect(() => {
    document.title = title ? `${title} · Odometer` : "Odometer";
  }, [title]);
}
