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
          <p>Of the bills that run, as of now, it changes:</p>
          <Changes changes={changes} />
        </>
      ) : (
        <>
          <p>As of now no charge of the bills that run differs.</p>
          {if_in_force.length > 0 && (
            <>
              <p>Had it been in force at their start:</p>
              <Changes changes={if_in_force} />
            </>
          )}
        </>
      )}
    </div>
  );
}
