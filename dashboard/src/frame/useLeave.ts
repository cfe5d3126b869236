import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { forget } from "../api/session";

/** Leads to the sign-in once the session has ended, and forgets everything that was read in it. */
export function useLeave(): () => Promise<void> {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return async () => {
    await navigate({ to: "/sign-in", ignoreBlocker: true });
    forget(queries); // not before: what is shown asks for the session
  };
}
