import { Link } from "@tanstack/react-router";
import { Empty } from "./Empty";

export function NotFound() {
  return (
    <Empty title="There is no such screen">
      <p>
        The address may have lost a part. <Link to="/customers">Customers</Link>
      </p>
    </Empty>
  );
}
