import { useQuery } from "@tanstack/react-query";
import { answer, api, type Schema } from "../../api/client";
import { useSession } from "../../api/session";

const one = { page_size: 1 };
const days = 86_400_000; // milliseconds
const soon = 2_000;

/** Reports whether at least one key can send events: a key that is neither read-only nor revoked. */
export const usable = (keys: Pick<Schema<"APIKeyMetadata">, "scope" | "revoked_at">[]) => keys.some(({ scope, revoked_at }) => scope !== "read_only" && revoked_at === null);

/** Returns the state of each step. An unknown state is undefined, for example without the permission to read it. */
export function useSteps() {
  const { permissions } = useSession();
  const may = (permission: string) => permissions.includes(permission);
  const keys = useQuery({
    queryKey: ["api-keys", "usable"],
    queryFn: async ({ signal }) => usable((await answer(api.GET("/v1/api-keys", { signal }))).data),
    enabled: may("api_keys:manage"),
  });
  const event = useQuery({
    queryKey: ["events", "first"],
    queryFn: async ({ signal }) => {
      const start = new Date(Date.now() - 30 * days).toISOString();
      const [newest] = (await answer(api.GET("/v1/events", { params: { query: { ...one, start } }, signal }))).data;
      return newest ?? null;
    },
    enabled: may("events:read"),
    refetchInterval: ({ state }) => (state.data ? false : soon), // poll until an event arrives
  });
  const meters = useQuery({
    queryKey: ["meters", "first"],
    queryFn: async ({ signal }) => (await answer(api.GET("/v1/meters", { params: { query: one }, signal }))).data.length > 0,
    enabled: may("meters:read"),
  });
  const prices = useQuery({
    queryKey: ["pricing", "first"],
    queryFn: async ({ signal }) => (await answer(api.GET("/v1/pricing", { params: { query: one }, signal }))).data.length > 0,
    enabled: may("pricing:read"),
  });
  const provider = useQuery({
    queryKey: ["provider", "first"],
    queryFn: async ({ signal }) => (await answer(api.GET("/v1/billing/providers", { signal }))).data.some(({ connected }) => connected),
    enabled: may("billing:read"),
  });
  const reading = [keys, event, meters, prices, provider].some(({ isLoading }) => isLoading);
  return { reading, key: keys.data, event: event.data, meter: meters.data, price: prices.data, provider: provider.data };
}
