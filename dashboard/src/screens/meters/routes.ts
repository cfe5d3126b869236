import { createRoute, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { frame, readSearch } from "../../routes";

// The slug of a meter begins with a letter or a digit, so a path below /meters/- is never the path of a meter.

const meters = createRoute({
  getParentRoute: () => frame,
  path: "/meters",
  validateSearch: readSearch("archived", "page"),
  component: lazyRouteComponent(() => import("./Meters"), "Meters"),
});

const newMeter = createRoute({
  getParentRoute: () => frame,
  path: "/meters/-/new",
  component: lazyRouteComponent(() => import("./NewMeter"), "NewMeter"),
});

const meter = createRoute({
  getParentRoute: () => frame,
  path: "/meters/$meter",
  component: lazyRouteComponent(() => import("./Meter"), "Meter"),
});

const home = createRoute({
  getParentRoute: () => meter,
  path: "/",
  beforeLoad: ({ params }) => {
    throw redirect({ to: "/meters/$meter/prices", params, replace: true });
  },
});

const prices = createRoute({
  getParentRoute: () => meter,
  path: "/prices",
  component: lazyRouteComponent(() => import("./MeterPrices"), "MeterPrices"),
});

const details = createRoute({
  getParentRoute: () => meter,
  path: "/details",
  component: lazyRouteComponent(() => import("./MeterDetails"), "MeterDetails"),
});

const uncounted = createRoute({
  getParentRoute: () => meter,
  path: "/uncounted-events",
  validateSearch: readSearch("rule", "page"),
  component: lazyRouteComponent(() => import("./UncountedEvents"), "UncountedEvents"),
});

export const meterRoutes = [meters, newMeter, meter.addChildren([home, prices, details, uncounted])] as const;
