import { useQuery } from "@tanstack/react-query";
import { Refused } from "../../acts/Refused";
import type { Schema } from "../../api/client";
import { previewPrice, type Priced } from "../../api/prices";
import { LoadingText } from "../../states/Loading";
import { Amount } from "../../values/Amount";
import { Changes } from "../../values/Changes";
import { difference } from "../../values/decimal";
import { cell, Table } from "../../values/Table";
import { ProviderDifferences } from "./ProviderDifferences";

/**
 * Shows how a price would change the running bills, in total and for the customers with the largest differences, and
 * the provider's prices that are billed instead.
 */
export function Impact({ of, body }: { of: Priced; body: Schema<"SetPricing"> }) {
  const { data, error } = useQuery({ queryKey: ["pricing", "preview", of, body], queryFn: () => previewPrice(of, body), gcTime: 0 });
  if (error) return <Refused error={error} />;
  if (!data) return <LoadingText />;
  const { changes, if_in_force, provider_differences } = data;
  return (
    <>
      <div role="status">
        {changes.length > 0 ? (
          <>
            <p>The price changes these running bills as of now:</p>
            <Effect of={changes} />
          </>
        ) : (
          <>
            <p>The price changes no charge of the running bills as of now.</p>
            {if_in_force.length > 0 && (
              <>
                <p>If the price had applied since the start of the running periods:</p>
                <Effect of={if_in_force} />
              </>
            )}
          </>
        )}
      </div>
      <ProviderDifferences of={provider_differences} />
    </>
  );
}

const columns = [{ title: "Customer" }, { title: "Now", number: true }, { title: "Then", number: true }, { title: "Difference", number: true }];

/** Shows the effect of the price on the charges, and the customers with the largest differences. */
function Effect({ of }: { of: Schema<"PreviewedImpact">[] }) {
  return (
    <>
      <Changes changes={of} />
      {of.some(({ customers, largest }) => customers > largest.length) && <p className="muted small">Only the customers with the largest differences are listed.</p>}
      {of.map(({ currency, largest }) => (
        <Table key={currency} caption={`The customers with the largest differences in ${currency}`} columns={columns}>
          <tbody>
            {largest.map(({ external_id, before, after }) => (
              <tr key={external_id}>
                <td className={cell.main}>{external_id}</td>
                <td className={cell.number} data-title="now">
                  <Amount value={before} currency={currency} />
                </td>
                <td className={cell.number} data-title="then">
                  <Amount value={after} currency={currency} />
                </td>
                <td className={cell.number} data-title="difference">
                  <Amount value={difference(after, before)} currency={currency} />
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      ))}
    </>
  );
}
