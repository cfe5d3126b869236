import { QueryCache, QueryClient } from "@tanstack/react-query";
import { createRootRouteWithContext, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { Failure } from "./api/client";
import { forget, session } from "./api/session";
import { Frame } from "./frame/Frame";
import { NotFound } from "./states/NotFound";
import { RouteFailed } from "./states/RouteFailed";

/** What was asked of the address: text or nothing. */
const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

/** The same without what is absent, as addresses have it. */
function present<T extends object>(search: T): { [Name in keyof T]?: NonNullable<T[Name]> } {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined)) as never;
}

const notSignedIn = (error: unknown) => error instanceof Failure && error.status === 401;

export const queries = new QueryClient({
  queryCache: new QueryCache({
    // A session may end at any time: in twelve hours, or by somebody's hand.
    onError(error, query) {
      if (!notSignedIn(error) || query.queryKey[0] === "session") return;
      forget(queries);
      void router.navigate({ to: "/sign-in", search: { to: router.state.location.href } });
    },
  }),
  defaultOptions: {
    queries: {
      staleTime: 10_000,
      retry: (failures, error) => failures < 2 && error instanceof Failure && (error.status === 0 || error.status >= 500),
    },
  },
});

const root = createRootRouteWithContext<{ queries: QueryClient }>()({ notFoundComponent: NotFound, errorComponent: RouteFailed });

const signIn = createRoute({
  getParentRoute: () => root,
  path: "/sign-in",
  validateSearch: (search) => present({ to: text(search["to"]) }),
  component: lazyRouteComponent(() => import("./screens/SignIn"), "SignIn"),
});

const frame = createRoute({
  getParentRoute: () => root,
  id: "frame",
  async beforeLoad({ context, location }) {
    await context.queries.ensureQueryData(session).catch((error: unknown) => {
      if (notSignedIn(error)) throw redirect({ to: "/sign-in", search: location.pathname === "/" ? {} : { to: location.href } });
      throw error;
    });
  },
  component: Frame,
});

const home = createRoute({
  getParentRoute: () => frame,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/customers", replace: true });
  },
});

const customers = createRoute({
  getParentRoute: () => frame,
  path: "/customers",
  validateSearch: (search) => present({ search: text(search["search"]), page: text(search["page"]) }),
  component: lazyRouteComponent(() => import("./screens/Customers"), "Customers"),
});

const customer = createRoute({
  getParentRoute: () => frame,
  path: "/customers/$customer",
  component: lazyRouteComponent(() => import("./screens/Customer"), "Customer"),
});

const customerHome = createRoute({
  getParentRoute: () => customer,
  path: "/",
  beforeLoad: ({ params }) => {
    throw redirect({ to: "/customers/$customer/usage", params, replace: true });
  },
});

const customerUsage = createRoute({
  getParentRoute: () => customer,
  path: "/usage",
  validateSearch: (search) => present({ meter: text(search["meter"]) }),
  component: lazyRouteComponent(() => import("./screens/CustomerUsage"), "CustomerUsage"),
});

const customerBill = createRoute({
  getParentRoute: () => customer,
  path: "/bill",
  validateSearch: (search) => present({ meter: text(search["meter"]) }),
  component: lazyRouteComponent(() => import("./screens/CustomerBill"), "CustomerBill"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    signIn,
    frame.addChildren([home, customers, customer.addChildren([customerHome, customerUsage, customerBill])]),
  ]),
  context: { queries },
  defaultPreload: "intent",
  defaultPreloadStaleTime: 0,
  // Ids and words, as they are, rather than as JSON.
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
