import { useMutation, useQueryClient, type QueryKey } from "@tanstack/react-query";
import { useRouter, type NavigateOptions } from "@tanstack/react-router";
import { useState } from "react";

interface After<Input, Output> {
  /** The queries that the act changes. They are read again. */
  changes: QueryKey[];
  done?: (output: Output, input: Input) => void;
  /** Returns the next screen. If the user has opened another screen before the answer, that screen stays. */
  leads?: (output: Output) => NavigateOptions | undefined;
}

/** Returns an action of the user. Each call of mutate runs the action once. */
export function useAct<Input = void, Output = unknown>(act: (input: Input) => Promise<Output>, { changes, done, leads }: After<Input, Output>) {
  const queries = useQueryClient();
  const router = useRouter();
  const here = () => router.latestLocation.pathname;
  const [successes, setSuccesses] = useState(0);
  const mutation = useMutation({
    mutationFn: act,
    onMutate: here,
    async onSuccess(output, input, begunAt) {
      setSuccesses((before) => before + 1);
      done?.(output, input);
      const next = here() === begunAt ? leads?.(output) : undefined;
      if (next) void router.navigate({ ...next, ignoreBlocker: true }); // the form is saved: leaving it loses nothing
      await Promise.all(changes.map((queryKey) => queries.invalidateQueries({ queryKey })));
    },
  });
  return { ...mutation, successes };
}

/** The part of the result of useAct that a button and a form need. */
export type Act<Input = void> = Pick<ReturnType<typeof useAct<Input>>, "mutate" | "isPending" | "error" | "reset" | "successes">;
