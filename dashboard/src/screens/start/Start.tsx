import { Head } from "../../frame/Head";
import { FirstSteps } from "./FirstSteps";

/** Shows the steps from an empty tenant to the first bill, also after they are done. */
export function Start() {
  return (
    <>
      <Head title="First steps">From an empty tenant to the first bill. Completed steps are detected automatically.</Head>
      <FirstSteps />
    </>
  );
}
