import { QueryClient } from "@tanstack/react-query";
import { createRoute, createRouter, redirect } from "@tanstack/react-router";
import { Failure } from "./api/client";
import { frame, root } from "./routes";
import { alertRoutes } from "./screens/alerts/routes";
import { billingRoutes } from "./screens/billing/routes";
import { customerRoutes } from "./screens/customers/routes";
import { developerRoutes } from "./screens/developers/routes";
import { eventRoutes } from "./screens/events/routes";
import { meterRoutes } from "./screens/meters/routes";
import { overview } from "./screens/overview/routes";
import { planRoutes } from "./screens/plans/routes";
import { settingsRoutes } from "./screens/settings/routes";
import { start } from "./screens/start/routes";
import { NotFound } from "./states/NotFound";
import { signInRoutes } from "./screens/sign-in/routes";
import { usage } from "./screens/usage/routes";

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 10_000,
      retry: (failures, error) => failures < 2 && error instanceof Failure && (error.status === 0 || error.status >= 500),
    },
  },
});

const home = createRoute({
  getParentRoute: () => frame,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/overview", replace: true });
  },
});

/** The route of an address without a screen. It is in the frame, so that the navigation is shown. */
const unknown = createRoute({ getParentRoute: () => frame, path: "$", component: NotFound });

export const router = createRouter({
  routeTree: root.addChildren([...signInRoutes, frame.addChildren([home, start, overview, usage, ...customerRoutes, ...meterRoutes, ...planRoutes, ...eventRoutes, ...billingRoutes, ...alertRoutes, ...developerRoutes, ...settingsRoutes, unknown])]),
  context: { queries },
  defaultPreload: "intent",
  // The screen of another customer or sync is mounted anew, without the typed text and requests of the previous one.
  defaultRemountDeps: ({ params }) => params,
  defaultPreloadStaleTime: 0,
  // The search parameters of an address contain ids and words as plain text, not as JSON.
  parseSearch: (search) => Object.fromEntries(new URLSearchParams(search)),
  stringifySearch: (search) => {
    const words = new URLSearchParams(Object.entries(search).filter((entry): entry is [string, string] => typeof entry[1] === "string"));
    return words.size > 0 ? `?${words}` : "";
  },
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
