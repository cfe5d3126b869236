/** The subjects, in the order in which they are shown. */
export const screens = [
  ["/overview", "Overview"],
  ["/customers", "Customers"],
  ["/meters", "Meters"],
  ["/events", "Events"],
  ["/billing", "Billing"],
  ["/developers", "Developers"],
  ["/settings", "Settings"],
] as const;
