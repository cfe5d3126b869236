import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { session } from "../testing";
import { Ago } from "./Ago";

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

test("an instant is shown relative to now, and updated while time passes", () => {
  vi.useFakeTimers({ now: new Date("2026-12-01T12:00:00Z") });
  const client = new QueryClient();
  client.setQueryData(["session"], session);
  const shown = (at: string) => (
    <QueryClientProvider client={client}>
      <Ago at={at} />
    </QueryClientProvider>
  );
  const { rerender } = render(shown("2026-12-01T11:00:00Z"));
  screen.getByText("1 hour ago");
  act(() => vi.advanceTimersByTime(14_000));
  rerender(shown("2026-12-01T12:00:13Z")); // saved a second ago
  screen.getByText("just now");
  act(() => vi.advanceTimersByTime(2 * 60_000));
  screen.getByText("2 minutes ago");
  expect(client.isFetching()).toBe(0);
});
