import { useLocation } from "@tanstack/react-router";
import { useLayoutEffect, useRef } from "react";

/**
 * Marks a screen as arriving until all of its first data is there. Meanwhile the content below an element that
 * is loading is hidden, so that nothing moves under the user's eyes or finger. Returns the ref of the screen.
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

/** The longest arrival, in milliseconds. After it, all content is shown. */
const longest = 3_000;
