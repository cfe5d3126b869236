import { useSession } from "../api/session";

/** Shows a link to a customer's runs in the Temporal UI, if the URL of the Temporal UI is configured. */
export function Workflows({ of }: { of: string }) {
  const { workflows_url: url } = useSession();
  if (!url) return null;
  return (
    <>
      <span className="muted">·</span>{" "}
      <a href={`${url}?query=${encodeURIComponent(`OdometerCustomer="${of}"`)}`} target="_blank" rel="noreferrer">
        Runs in Temporal
      </a>
    </>
  );
}
