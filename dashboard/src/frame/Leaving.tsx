import { useBlocker, type ShouldBlockFn } from "@tanstack/react-router";
import { Ask } from "../acts/Dialog";
import { lossOf } from "../acts/unsaved";

/** Reports whether leaving loses unsaved data. */
const loses = () => lossOf() !== undefined;

/** Reports whether a navigation loses unsaved data. A change on the same path, such as a filter, keeps the forms. */
const leavesForms: ShouldBlockFn = ({ current, next }) => current.pathname !== next.pathname && loses();

/** Asks before a link, the back button or a reload takes the user away from unsaved data. */
export function Leaving() {
  const { status, proceed, reset } = useBlocker({ shouldBlockFn: leavesForms, enableBeforeUnload: loses, withResolver: true });
  const loss = status === "blocked" ? lossOf() : undefined;
  return loss && <Ask loss={loss} stay={() => reset?.()} leave={() => proceed?.()} />;
}
