import { useSession } from "../api/session";

/** The way to a customer's runs in the Temporal UI, where the deployment names one. */
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
