import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useSession } from "../../api/session";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import { needed } from "./needed";

const columns = [{ title: "What" }, { title: "Who" }, { title: "State" }, { title: "Since", number: true }];

/** What goes on only when somebody does something, the most urgent first. */
export function Needs() {
  const { data, error, refetch } = useQuery(needed(useSession()));
  if (error) return <Failed what="What needs somebody" error={error} retry={() => void refetch()} />;
  if (data?.length === 0) return <p className="muted">Nothing does.</p>;
  return (
    <Table caption="What needs somebody" columns={columns} busy={!data}>
      {data ? (
        <tbody>
          {data.map((need) => (
            <tr key={need.id}>
              <td className={cell.main}>
                <Link {...need.link}>{need.what}</Link>
              </td>
              <td>{need.who}</td>
              <td>
                <State is={need.means}>{need.state}</State>
                {need.until && (
                  <span className="muted small">
                    {" "}
                    made final <Ago at={need.until} />
                  </span>
                )}
              </td>
              <td className={cell.number}>{need.since && <Ago at={need.since} />}</td>
            </tr>
          ))}
        </tbody>
      ) : (
        <LoadingRows columns={columns.length} rows={2} />
      )}
    </Table>
  );
}
