import type { QueryClient } from "@tanstack/react-query";
import { createRootRouteWithContext, createRoute, redirect } from "@tanstack/react-router";
import { Failure } from "./api/client";
import { session } from "./api/session";
import { Frame } from "./frame/Frame";
import { NotFound } from "./states/NotFound";
import { RouteFailed } from "./states/RouteFailed";

// The routes that contain all other routes. The routes of a section are in the folder of its screens.

/** Returns a function that reads these parameters of an address. Values that are empty or not text are absent. */
export const readSearch =
  <Name extends string>(...names: Name[]) =>
  (search: Record<string, unknown>): { [name in Name]?: string } =>
    Object.fromEntries(names.map((name) => [name, search[name]]).filter(([, value]) => typeof value === "string" && value !== "")) as never;

/** Reports whether an error means that no member is signed in. */
const notSignedIn = (error: unknown) => error instanceof Failure && error.status === 401;

export const root = createRootRouteWithContext<{ queries: QueryClient }>()({ notFoundComponent: NotFound, errorComponent: RouteFailed });

/** The route around every screen of a signed-in member. */
export const frame = createRoute({
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
