import { Head } from "../../frame/Head";
import { FirstSteps } from "./FirstSteps";

/** The way from an empty tenant to the first bill, whenever somebody wants to see it. */
export function Start() {
  return (
    <>
      <Head title="First steps">From an empty tenant to the first bill. What is done is known from the API.</Head>
      <FirstSteps />
    </>
  );
}
