import { createRoute, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { asks, frame } from "../../routes";

const customers = createRoute({
  getParentRoute: () => frame,
  path: "/customers",
  validateSearch: asks("search", "page"),
  component: lazyRouteComponent(() => import("./Customers"), "Customers"),
});

const customer = createRoute({
  getParentRoute: () => frame,
  path: "/customers/$customer",
  component: lazyRouteComponent(() => import("./Customer"), "Customer"),
});

const home = createRoute({
  getParentRoute: () => customer,
  path: "/",
  beforeLoad: ({ params }) => {
    throw redirect({ to: "/customers/$customer/usage", params, replace: true });
  },
});

const usage = createRoute({
  getParentRoute: () => customer,
  path: "/usage",
  validateSearch: asks("meter"),
  component: lazyRouteComponent(() => import("./CustomerUsage"), "CustomerUsage"),
});

const bill = createRoute({
  getParentRoute: () => customer,
  path: "/bill",
  validateSearch: asks("meter"),
  component: lazyRouteComponent(() => import("./CustomerBill"), "CustomerBill"),
});

export const customerRoutes = [customers, customer.addChildren([home, usage, bill])] as const;
