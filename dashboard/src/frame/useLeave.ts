import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { forgetSession } from "../api/session";

/** Returns a function that leads to the sign-in once the session has ended, and forgets all data of the session. */
export function useLeave(): () => Promise<void> {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return async () => {
    await navigate({ to: "/sign-in", ignoreBlocker: true });
    forgetSession(queries); // not before the navigation: the shown screen needs the session
  };
}
