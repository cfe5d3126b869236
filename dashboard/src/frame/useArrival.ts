import { useLocation } from "@tanstack/react-router";
import { useLayoutEffect, useRef } from "react";

/**
 * Sets the attribute data-arriving on a screen until all of its initial data is loaded. Until then, the content below
 * an element that is loading is hidden, so that the layout does not shift. Returns the ref of the screen.
 */
export function useArrival() {
  const { pathname } = useLocation();
  const content = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const screen = content.current;
    if (!screen) return;
    screen.dataset.arriving = "";
    const arrived = new MutationObserver(() => {
      if (!screen.querySelector("[data-loading]")) end();
    });
    const end = () => {
      arrived.disconnect();
      delete screen.dataset.arriving;
    };
    arrived.observe(screen, { childList: true, subtree: true });
    const late = setTimeout(end, longest);
    return () => {
      clearTimeout(late);
      end();
    };
  }, [pathname]);
  return content;
}

/** The maximum time for which data-arriving is set, in milliseconds. Afterwards, all content is shown. */
const longest = 3_000;
