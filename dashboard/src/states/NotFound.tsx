import { Link } from "@tanstack/react-router";
import { Head } from "../frame/Head";

/** Shows that an address has no screen. */
export function NotFound() {
  return (
    <>
      <Head title="This screen does not exist">The address may be incomplete.</Head>
      <p>
        <Link to="/overview">Overview</Link>
      </p>
    </>
  );
}
