import { queryOptions, useSuspenseQuery, type QueryClient } from "@tanstack/react-query";
import { answer, api, sendCSRFToken, type Schema } from "./client";
import { sessionGoesOn } from "./ended";

export type Session = Schema<"Session">;

/** The signed-in member, the tenant and the permissions. */
export const session = queryOptions({
  queryKey: ["session"],
  async queryFn({ signal }) {
    const found = await answer(api.GET("/v1/auth/session", { signal }));
    sendCSRFToken(found.csrf_token);
    return found;
  },
  staleTime: 5 * 60_000,
});

/** Returns the session. Suspends the component until the session is loaded. */
export function useSession(): Session {
  return useSuspenseQuery(session).data;
}

/** Signs in, or returns the tenants to choose from. */
export async function signIn(email: string, password: string, tenant?: string): Promise<Schema<"SessionTenant">[]> {
  const body = tenant === undefined ? { email, password } : { email, password, tenant_id: tenant };
  const { tenants } = await answer(api.POST("/v1/auth/login", { body }));
  return tenants ?? [];
}

/** The storage key that notifies the other tabs of the browser when the member signs out. */
export const signedOut = "signed-out";

/** Informs the other tabs of this browser that the user has signed out. */
export function announceSignOut(): void {
  localStorage.setItem(signedOut, new Date().toISOString());
}

/** Removes the CSRF token and all loaded data, so that the next session begins without them. */
export function forgetSession(queries: QueryClient): void {
  sendCSRFToken(undefined);
  sessionGoesOn(); // the next sign-in begins another session
  queries.clear();
}
