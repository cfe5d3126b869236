import { Checkbox } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { breakdown, breakdownFile, type BreakdownQuery } from "../../api/breakdown";
import type { Schema } from "../../api/client";
import { allMeters } from "../../api/meters";
import { useSession } from "../../api/session";
import { inWords } from "../../api/words";
import { Filter } from "../../frame/Filter";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { save } from "../../values/csv";
import { range as days } from "../../values/instants";
import { Usage as MeterUsage } from "../../values/Usage";
import { RangeFilter } from "../customers/RangeFilter";
import { instantsOf } from "../customers/ranges";
import { dimensionsOf, listed, none, unlisted, type Dimension } from "./dimensions";
import { Filters } from "./Filters";
import { filtersOf } from "./filters";
import { Rows } from "./Rows";
import styles from "./Usage.module.css";

const here = "/frame/usage";

/** Shows the usage of a meter by all customers, broken down by dimensions and windows. */
export function Usage() {
  return (
    <>
      <Head title="Usage">The usage of all customers. It includes late usage.</Head>
      <Allowed to="usage:read">
        <Allowed to="meters:read">
          <ChosenUsage />
        </Allowed>
      </Allowed>
    </>
  );
}

/** Shows the usage of the meter that the address names, or of the first meter. */
function ChosenUsage() {
  const { meter } = useSearch({ from: here });
  const { data, error, refetch } = useQuery(allMeters);
  if (error && !data) return <Failed what="The meters" error={error} retry={() => void refetch()} />;
  if (!data) return <LoadingText />;
  const chosen = data.find(({ slug }) => slug === meter) ?? data[0];
  if (!chosen) {
    return (
      <Empty title="No meters yet">
        <p>A meter counts the usage of your customers.</p>
        <Link to="/meters/-/new">Create a meter</Link>
      </Empty>
    );
  }
  return <UsageOfMeter key={chosen.slug} meter={chosen} meters={data} />;
}

/** Shows the choices of a meter's breakdown, and the breakdown. */
function UsageOfMeter({ meter, meters }: { meter: Schema<"Meter">; meters: Schema<"Meter">[] }) {
  const { tenant } = useSession();
  const search = useSearch({ from: here });
  const all = dimensionsOf(meter.group_by);
  const sent = unlisted(search.by ?? "customer");
  const dimensions = all.filter((dimension) => sent.includes(dimension.sent));
  const granularity = granularities.find((one) => one === search.granularity);
  const limit = limits.find((one) => one === search.limit);
  const filters = filtersOf(search.filter, meter.group_by);
  const query: BreakdownQuery = {
    meter: meter.slug,
    filters,
    by: dimensions.map((dimension) => dimension.sent),
    ...(granularity && { granularity }),
    ...(limit && { limit: Number(limit) }),
    ...(!limit && (search.order === "value" || search.order === "key") && { order: search.order }),
    ...instantsOf(search, tenant.timezone, new Date()),
  };
  return (
    <>
      <div className={styles.filters}>
        <Filter name="meter" label="Meter" options={meters.map(({ slug }, index) => [index === 0 ? "" : slug, slug] as const)} />
        <RangeFilter first="This month" />
        <Filter
          name="granularity"
          label="Windows"
          options={[
            ["", "Whole range"],
            ["hour", "By hour"],
            ["day", "By day"],
            ["week", "By week"],
            ["month", "By month"],
          ]}
        />
        <Filter name="limit" label="Rows" options={[["", "All rows"], ...limits.map((limit) => [limit, `Top ${limit} and all others`] as const)]} />
        {!limit && <Filter name="order" label="Order" options={granularity ? ordersOfWindows : orders} />}
      </div>
      <Dimensions all={all} chosen={dimensions} />
      {meter.group_by.length > 0 && <Filters properties={meter.group_by} filters={filters} />}
      <Breakdown key={JSON.stringify(query)} query={query} dimensions={dimensions} />
    </>
  );
}

const granularities = ["hour", "day", "week", "month"] as const;
const limits = ["5", "10", "100"] as const;

const [byValue, byKey] = ["Highest usage first", "In order of the columns"];

/** The orders of rows. The first one is the API's default, which depends on whether the query has windows. */
const orders = [["", byValue], ["key", byKey]] as const;
const ordersOfWindows = [["", byKey], ["value", byValue]] as const;

/** Shows a checkbox for each dimension. Without the parameter by in the address, Customer is checked. */
function Dimensions({ all, chosen }: { all: Dimension[]; chosen: Dimension[] }) {
  const { page: _, ...search } = useSearch({ from: here });
  const navigate = useNavigate();
  const inOrder = (chosen: string[]) => all.map(({ sent }) => sent).filter((sent) => chosen.includes(sent));
  const choose = (sent: string[]) => void navigate({ to: "/usage", search: { ...search, by: listed(inOrder(sent)) || none }, replace: true });
  return (
    <Checkbox.Group label="Break down by" value={chosen.map(({ sent }) => sent)} onChange={choose}>
      <div className={styles.dimensions}>
        {all.map(({ sent, title }) => (
          <Checkbox key={sent} value={sent} label={title} />
        ))}
      </div>
    </Checkbox.Group>
  );
}

/** Shows the rows of the breakdown, and the button that saves all rows to a file. */
function Breakdown({ query, dimensions }: { query: BreakdownQuery; dimensions: Dimension[] }) {
  const { tenant } = useSession();
  const { page } = useSearch({ from: here });
  const read = useQuery(breakdown(query, page));
  const file = useAct(() => breakdownFile(query), { changes: [], done: ({ text }) => save(`usage-${query.meter}.csv`, text, "text/csv;charset=utf-8") });
  return (
    <section aria-label={`Usage of ${query.meter}`}>
      <div className={styles.head}>
        {read.isPending ? <span data-loading /> : <span className="muted">{read.data && days(read.data.period.start, read.data.period.end, tenant.timezone)}</span>}
        <span className={styles.total}>{read.data && <MeterUsage meter={query.meter} value={read.data.total} />}</span>
        <Verb needs="usage:read" size="xs" loading={file.isPending} onClick={() => file.mutate()}>
          Download CSV
        </Verb>
      </div>
      <Refused error={file.error} />
      {file.data?.complete === false && <p className="muted small">The file contains only the first 20 pages of at most 10,000 rows. Choose a shorter range or fewer dimensions for a complete file.</p>}
      {read.data && <Gaps of={read.data} meter={query.meter} />}
      <Rows query={query} dimensions={dimensions} read={read} page={page} />
    </section>
  );
}

/** Shows the usage that the filters may have missed, or the warnings about the missed usage. */
function Gaps({ of: { other_total, warnings = [] }, meter }: { of: Schema<"BreakdownResult">; meter: string }) {
  if (other_total !== undefined) {
    return (
      <p className="muted small">
        The total excludes <MeterUsage meter={meter} value={other_total} unitless="units" /> with unknown property values. Some of them can match the filters.
      </p>
    );
  }
  return warnings.map((warning) => (
    <p key={warning} className="muted small">
      {inWords(warning)}
    </p>
  ));
}
