import { useLocation } from "@tanstack/react-router";
import { useLayoutEffect, useRef } from "react";

/**
 * A screen arrives until all that it reads at first is there. Meanwhile what stands below something
 * that is still read is not shown, so that nothing moves under somebody's eyes or finger.
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

/** How long it may take: then what is there is shown, in milliseconds. */
const longest = 3_000;
