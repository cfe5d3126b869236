import { Link, Outlet } from "@tanstack/react-router";
import { Tabs } from "../../frame/Tabs";

const tabs = [
  ["/developers/api-keys", "API keys"],
  ["/developers/hmac-secrets", "HMAC secrets"],
  ["/developers/webhooks", "Webhooks"],
] as const;

/** What every screen for those who write programs begins with. */
export function Developers() {
  return (
    <>
      <h1>Developers</h1>
      <p className="muted">
        Credentials and webhooks for your programs. <Link to="/start">First steps</Link>
      </p>
      <Tabs label="For developers" tabs={tabs} />
      <Outlet />
    </>
  );
}
