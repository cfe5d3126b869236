/** The sections of the dashboard, in the order of the navigation. */
export const screens = [
  ["/overview", "Overview"],
  ["/usage", "Usage"],
  ["/customers", "Customers"],
  ["/meters", "Meters"],
  ["/events", "Events"],
  ["/billing", "Billing"],
  ["/alerts", "Alerts"],
  ["/developers", "Developers"],
  ["/settings", "Settings"],
] as const;

/** The further screens that Find offers, each with the name to search for. */
export const furtherScreens = [
  ["/start", "First steps"],
  ["/meters/-/plans", "Plans"],
  ["/meters/-/new", "Create a meter"],
  ["/events/rejected", "Rejected events"],
  ["/events/conflicts", "Event conflicts"],
  ["/billing/syncs", "Syncs"],
  ["/billing/holds", "Held invoices"],
  ["/billing/reconciliation", "Reconciliation"],
  ["/billing/unrated", "Unrated usage"],
  ["/billing/discrepancies", "Discrepancies"],
  ["/billing/auto-sync", "Auto-Sync"],
  ["/billing/provider", "Provider"],
  ["/billing/states", "States of billing"],
  ["/alerts/new", "Create an alert"],
  ["/developers/api-keys", "API keys"],
  ["/developers/hmac-secrets", "HMAC secrets"],
  ["/developers/webhooks", "Webhooks"],
  ["/settings/members", "Members and invitations"],
  ["/settings/tenant", "Tenant settings"],
  ["/settings/single-sign-on", "Single sign-on"],
  ["/settings/audit-log", "Audit log"],
  ["/settings/you", "Your password and sessions"],
] as const;
