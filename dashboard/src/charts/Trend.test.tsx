import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { Trend } from "./Trend";

afterEach(cleanup);

test("the keyboard and the pointer show the value of a bar, until the pointer leaves", () => {
  render(<Trend label="Rejected" values={[0, 1234, 7]} when={(index) => `day ${index}`} />);
  const trend = screen.getByRole("slider", { name: "Rejected" });
  fireEvent.keyDown(trend, { key: "ArrowLeft" });
  expect(trend.getAttribute("aria-valuetext")).toBe("day 2: 7");
  fireEvent.keyDown(trend, { key: "ArrowLeft" });
  expect(screen.getByText("day 1: 1,234")).toBeTruthy();
  fireEvent.mouseMove(trend, { clientX: 2 });
  expect(screen.getByText("day 0: 0")).toBeTruthy();
  fireEvent.mouseLeave(trend);
  expect(screen.queryByText(/^day/)).toBeNull();
});
