import { useQuery } from "@tanstack/react-query";
import { Refused } from "../../acts/Refused";
import type { Schema } from "../../api/client";
import { previewPrice, type Priced } from "../../api/prices";
import { LoadingText } from "../../states/Loading";
import { Changes } from "../../values/Changes";

/** What a price would change of the bills that run. */
export function Impact({ of, body }: { of: Priced; body: Schema<"SetPricing"> }) {
  const { data, error } = useQuery({ queryKey: ["pricing", "preview", of, body], queryFn: () => previewPrice(of, body), gcTime: 0 });
  if (error) return <Refused error={error} />;
  if (!data) return <LoadingText />;
  const { changes, if_in_force } = data;
  return (
    <div role="status">
      {changes.length > 0 ? (
        <>
          <p>The price changes these running bills as of now:</p>
          <Changes changes={changes} />
        </>
      ) : (
        <>
          <p>The price changes no charge of the running bills as of now.</p>
          {if_in_force.length > 0 && (
            <>
              <p>If the price had applied since the start of the running periods:</p>
              <Changes changes={if_in_force} />
            </>
          )}
        </>
      )}
    </div>
  );
}
