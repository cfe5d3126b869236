import { Link, Outlet } from "@tanstack/react-router";
import { Tabs } from "../../frame/Tabs";

const tabs = [
  ["/developers/api-keys", "API keys"],
  ["/developers/hmac-secrets", "HMAC secrets"],
  ["/developers/webhooks", "Webhooks"],
] as const;

/** Shows the title and the tabs of the screens for developers. */
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
