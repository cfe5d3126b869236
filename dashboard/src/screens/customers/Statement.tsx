import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { customer as readCustomer } from "../../api/customers";
import { statement } from "../../api/periods";
import { useSession } from "../../api/session";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Instant } from "../../values/Instant";
import { range } from "../../values/instants";
import styles from "./Statement.module.css";
import { Lines } from "./StatementLines";

/** Shows the whole bill of a period with every breakdown, for printing. */
export function Statement() {
  return (
    <Allowed to="billing:read">
      <Printed />
    </Allowed>
  );
}

/** Shows the statement that the address names. */
function Printed() {
  const { tenant } = useSession();
  const params = useParams({ from: "/frame/customers/$customer/statements/$period" });
  const { data: customer } = useQuery(readCustomer(params.customer));
  const { data, error, refetch } = useQuery(statement(params.period));
  if (error) return <Failed what="The statement" error={error} retry={() => void refetch()} />;
  return (
    <article className={styles.statement}>
      <Head
        where={[
          <Link to="/customers">Customers</Link>,
          <Link to="/customers/$customer/usage" params={{ customer: params.customer }}>
            {data?.external_id ?? "Customer"}
          </Link>,
          <Link to="/customers/$customer/bill" params={{ customer: params.customer }} search={{ period: params.period }}>
            Bill
          </Link>,
        ]}
        here="Statement"
        title="Statement of usage"
        action={
          <Button variant="default" size="sm" onClick={() => print()}>
            Print
          </Button>
        }
      >
        {data ? range(data.start, data.end, tenant.timezone) : <LoadingText />}
      </Head>
      <dl className={styles.parties}>
        <dt>From</dt>
        <dd>{tenant.name}</dd>
        <dt>To</dt>
        <dd>
          {customer?.name} <span className="muted">{data?.external_id}</span>
        </dd>
        {data && (
          <>
            <dt>{data.closed_at ? "Closed" : "Closes"}</dt>
            <dd>
              <Instant at={data.closed_at ?? data.due_at} /> <span className="muted">{tenant.timezone}</span>
            </dd>
          </>
        )}
      </dl>
      {data && data.state !== "closed" && <p className={styles.open}>The period is not closed. Usage can still be added.</p>}
      <Lines of={data} opened={() => "always"} />
      <p className={`muted small ${styles.note}`}>Usage and charges before tax and discounts. It is not an invoice.</p>
    </article>
  );
}
