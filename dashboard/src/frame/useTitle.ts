import { useEffect } from "react";

/** The window's title, by which a tab and a bookmark are found again. */
export function useTitle(title: string | undefined): void {
  useEffect(() => {
    document.title = title ? `${title} · Odometer` : "Odometer";
  }, [title]);
}
