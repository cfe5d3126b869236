import { useMutation, useQueryClient, type QueryKey } from "@tanstack/react-query";

interface After<Input, Output> {
  /** What has changed by it, and is read anew. */
  changes: QueryKey[];
  done?: (output: Output, input: Input) => void;
}

/** Something that a person does, once for each time they ask for it. */
export function useAct<Input = void, Output = unknown>(act: (input: Input) => Promise<Output>, { changes, done }: After<Input, Output>) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: act,
    async onSuccess(output, input) {
      done?.(output, input);
      await Promise.all(changes.map((queryKey) => queries.invalidateQueries({ queryKey })));
    },
  });
}

/** Of what useAct gives, what a button and a form need. */
export type Act<Input = void> = Pick<ReturnType<typeof useAct<Input>>, "mutate" | "isPending" | "error" | "reset">;
