import { useMutation, useQueryClient, type QueryKey } from "@tanstack/react-query";
import { useRouter, type NavigateOptions } from "@tanstack/react-router";
import { useState } from "react";

interface After<Input, Output> {
  /** The queries that it changes, which are read anew. */
  changes: QueryKey[];
  done?: (output: Output, input: Input) => void;
  /** Where it leads. A user who has gone to another screen before the answer came stays there. */
  leads?: (output: Output) => NavigateOptions | undefined;
}

/** Something that a person does, once for each time they ask for it. */
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

/** Of what useAct gives, what a button and a form need. */
export type Act<Input = void> = Pick<ReturnType<typeof useAct<Input>>, "mutate" | "isPending" | "error" | "reset" | "successes">;
