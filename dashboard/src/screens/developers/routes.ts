import { createRoute, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { frame, readSearch } from "../../routes";

const developers = createRoute({
  getParentRoute: () => frame,
  path: "/developers",
  component: lazyRouteComponent(() => import("./Developers"), "Developers"),
});

const home = createRoute({
  getParentRoute: () => developers,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/developers/api-keys", replace: true });
  },
});

const apiKeys = createRoute({
  getParentRoute: () => developers,
  path: "/api-keys",
  validateSearch: readSearch("ended", "page"),
  component: lazyRouteComponent(() => import("./APIKeys"), "APIKeys"),
});

const hmacSecrets = createRoute({
  getParentRoute: () => developers,
  path: "/hmac-secrets",
  validateSearch: readSearch("ended", "page"),
  component: lazyRouteComponent(() => import("./HMACSecrets"), "HMACSecrets"),
});

const webhooks = createRoute({
  getParentRoute: () => developers,
  path: "/webhooks",
  component: lazyRouteComponent(() => import("./Webhooks"), "Webhooks"),
});

const webhook = createRoute({
  getParentRoute: () => developers,
  path: "/webhooks/$webhook",
  validateSearch: readSearch("status", "message", "page"),
  component: lazyRouteComponent(() => import("./Webhook"), "Webhook"),
});

export const developerRoutes = [developers.addChildren([home, apiKeys, hmacSecrets, webhooks, webhook])] as const;
