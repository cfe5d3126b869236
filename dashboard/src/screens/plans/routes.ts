import { createRoute, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { frame, readSearch } from "../../routes";

// The "-" in these paths cannot be a meter's slug, because slugs begin with a letter or a digit.

const plans = createRoute({
  getParentRoute: () => frame,
  path: "/meters/-/plans",
  validateSearch: readSearch("archived", "page"),
  component: lazyRouteComponent(() => import("./Plans"), "Plans"),
});

const plan = createRoute({
  getParentRoute: () => frame,
  path: "/meters/-/plans/$plan",
  component: lazyRouteComponent(() => import("./Plan"), "Plan"),
});

const home = createRoute({
  getParentRoute: () => plan,
  path: "/",
  beforeLoad: ({ params }) => {
    throw redirect({ to: "/meters/-/plans/$plan/prices", params, replace: true });
  },
});

const prices = createRoute({
  getParentRoute: () => plan,
  path: "/prices",
  validateSearch: readSearch("page"),
  component: lazyRouteComponent(() => import("./PlanPrices"), "PlanPrices"),
});

const price = createRoute({
  getParentRoute: () => plan,
  path: "/prices/$meter",
  component: lazyRouteComponent(() => import("./PlanPrice"), "PlanPrice"),
});

const quotas = createRoute({
  getParentRoute: () => plan,
  path: "/quotas",
  component: lazyRouteComponent(() => import("../quotas/PlanQuotas"), "PlanQuotas"),
});

const features = createRoute({
  getParentRoute: () => plan,
  path: "/features",
  component: lazyRouteComponent(() => import("./PlanFeatures"), "PlanFeatures"),
});

export const planRoutes = [plans, plan.addChildren([home, prices, price, quotas, features])] as const;
