import { Head } from "../../frame/Head";
import { FirstSteps } from "./FirstSteps";

/** The way from an empty tenant to the first bill, whenever somebody wants to see it. */
export function Start() {
  return (
    <>
      <Head title="First steps">From an empty tenant to the first bill. Completed steps are detected automatically.</Head>
      <FirstSteps />
    </>
  );
}
