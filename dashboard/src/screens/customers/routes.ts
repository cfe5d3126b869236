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
  validateSearch: asks("meter", "range", "from", "to", "by"),
  component: lazyRouteComponent(() => import("./CustomerUsage"), "CustomerUsage"),
});

const bill = createRoute({
  getParentRoute: () => customer,
  path: "/bill",
  validateSearch: asks("meter", "period", "page", "sync"),
  component: lazyRouteComponent(() => import("./CustomerBill"), "CustomerBill"),
});

const invoices = createRoute({
  getParentRoute: () => customer,
  path: "/invoices",
  validateSearch: asks("state", "page", "open"),
  component: lazyRouteComponent(() => import("./CustomerInvoices"), "CustomerInvoices"),
});

const syncs = createRoute({
  getParentRoute: () => customer,
  path: "/syncs",
  validateSearch: asks("status", "page"),
  component: lazyRouteComponent(() => import("./CustomerSyncs"), "CustomerSyncs"),
});

const details = createRoute({
  getParentRoute: () => customer,
  path: "/details",
  component: lazyRouteComponent(() => import("./CustomerDetails"), "CustomerDetails"),
});

const statement = createRoute({
  getParentRoute: () => frame,
  path: "/customers/$customer/statements/$period",
  component: lazyRouteComponent(() => import("./Statement"), "Statement"),
});

export const customerRoutes = [customers, customer.addChildren([home, usage, bill, invoices, syncs, details]), statement] as const;
