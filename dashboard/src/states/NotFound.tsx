import { Link } from "@tanstack/react-router";
import { Head } from "../frame/Head";

/** What an address shows that names no screen. */
export function NotFound() {
  return (
    <>
      <Head title="There is no such screen">A part of the address may be missing.</Head>
      <p>
        <Link to="/overview">Overview</Link>
      </p>
    </>
  );
}
