import { useQuery } from "@tanstack/react-query";
import { Refused } from "../../acts/Refused";
import type { Schema } from "../../api/client";
import { previewPrice, type Priced } from "../../api/prices";
import { LoadingText } from "../../states/Loading";
import { Amount } from "../../values/Amount";

/** What a price would change of the bills that run. */
export function Impact({ of, body }: { of: Priced; body: Schema<"SetPricing"> }) {
  const { data, error } = useQuery({ queryKey: ["pricing", "preview", of, body], queryFn: () => previewPrice(of, body), gcTime: 0 });
  if (error) return <Refused error={error} />;
  if (!data) return <LoadingText />;
  const { changes, if_in_force } = data;
  return (
    <div role="status">
      {changes.length > 0 ? (
        <Changes title="Of the bills that run, as of now, it changes:" impact={changes} />
      ) : (
        <>
          <p>It changes none of the bills that run.</p>
          {if_in_force.length > 0 && <Changes title="Had it been in force at their start:" impact={if_in_force} />}
        </>
      )}
    </div>
  );
}

function Changes({ title, impact }: { title: string; impact: Schema<"PriceImpact">[] }) {
  return (
    <>
      <p>{title}</p>
      <ul>
        {impact.map(({ currency, before, after, customers }) => (
          <li key={currency}>
            <Amount value={before} currency={currency} /> → <Amount value={after} currency={currency} />
            <span className="muted">, {customers === 1 ? "1 customer" : `${customers} customers`}</span>
          </li>
        ))}
      </ul>
    </>
  );
}
