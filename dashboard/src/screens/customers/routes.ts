import type { QueryClient } from "@tanstack/react-query";
import { createRoute, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { Failure } from "../../api/client";
import { customerOf } from "../../api/customers";
import { frame, readSearch } from "../../routes";

const customers = createRoute({
  getParentRoute: () => frame,
  path: "/customers",
  validateSearch: readSearch("search", "page"),
  component: lazyRouteComponent(() => import("./Customers"), "Customers"),
});

/** The redirect from an external ID to its customer's usage, or to a search if there is no such customer. */
const byExternalID = createRoute({
  getParentRoute: () => frame,
  path: "/customers/-/by-external-id",
  validateSearch: readSearch("id", "meter", "range", "from", "to"),
  async beforeLoad({ context, search: { id = "", ...search } }: { context: { queries: QueryClient }; search: Record<string, string> }) {
    const customer = await context.queries.ensureQueryData(customerOf(id)).catch((error: unknown) => {
      if (error instanceof Failure && error.status === 404) throw redirect({ to: "/customers", search: { search: id }, replace: true });
      throw error;
    });
    throw redirect({ to: "/customers/$customer/usage", params: { customer: customer.id }, search, replace: true });
  },
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
  validateSearch: readSearch("meter", "range", "from", "to", "by"),
  component: lazyRouteComponent(() => import("./CustomerUsage"), "CustomerUsage"),
});

const bill = createRoute({
  getParentRoute: () => customer,
  path: "/bill",
  validateSearch: readSearch("meter", "period", "page", "sync"),
  component: lazyRouteComponent(() => import("./CustomerBill"), "CustomerBill"),
});

const quotas = createRoute({
  getParentRoute: () => customer,
  path: "/quotas",
  component: lazyRouteComponent(() => import("../quotas/CustomerQuotas"), "CustomerQuotas"),
});

const prices = createRoute({
  getParentRoute: () => customer,
  path: "/prices",
  validateSearch: readSearch("page"),
  component: lazyRouteComponent(() => import("./CustomerPrices"), "CustomerPrices"),
});

const price = createRoute({
  getParentRoute: () => customer,
  path: "/prices/$meter",
  component: lazyRouteComponent(() => import("./CustomerPrices"), "CustomerPrice"),
});

const invoices = createRoute({
  getParentRoute: () => customer,
  path: "/invoices",
  validateSearch: readSearch("state", "page", "open"),
  component: lazyRouteComponent(() => import("./CustomerInvoices"), "CustomerInvoices"),
});

const syncs = createRoute({
  getParentRoute: () => customer,
  path: "/syncs",
  validateSearch: readSearch("status", "page"),
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

export const customerRoutes = [customers, byExternalID, customer.addChildren([home, usage, quotas, prices, price, bill, invoices, syncs, details]), statement] as const;
