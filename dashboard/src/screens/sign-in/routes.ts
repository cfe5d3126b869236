import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { readSearch, root } from "../../routes";

const signIn = createRoute({
  getParentRoute: () => root,
  path: "/sign-in",
  validateSearch: readSearch("to", "problem"),
  component: lazyRouteComponent(() => import("./SignIn"), "SignIn"),
});

const atIssuer = createRoute({
  getParentRoute: () => root,
  path: "/sign-in/issuer",
  component: lazyRouteComponent(() => import("./AtIssuer"), "AtIssuer"),
});

const forgotten = createRoute({
  getParentRoute: () => root,
  path: "/sign-in/forgotten",
  component: lazyRouteComponent(() => import("./Forgotten"), "Forgotten"),
});

const invitation = createRoute({
  getParentRoute: () => root,
  path: "/invitation",
  component: lazyRouteComponent(() => import("./Invitation"), "Invitation"),
});

/** The routes that a user can open without a session. */
export const signInRoutes = [signIn, atIssuer, forgotten, invitation] as const;
