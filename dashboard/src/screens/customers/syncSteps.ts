import type { Schema } from "../../api/client";
import { inWords } from "../../api/words";
import { isOver, type SyncRun } from "../../api/syncs";

const answered: Schema<"SyncLine">["state"][] = ["accepted", "counted", "rejected"];

/** Returns the progress of a sync in words: its error, its pause, its step, or the number of answered reports. */
export function step({ status, error, last_error, pause, lines }: SyncRun): string {
  if (error) return inWords(error);
  if (pause) return `Paused: ${pause.reason}`;
  const reports = [...new Map(lines.map(({ report_id, state }) => [report_id, state])).values()];
  if (reports.length === 0) {
    if (isOver({ status })) return "There was nothing new to report.";
    if (last_error) return inWords(last_error);
    return status === "requested" ? "The sync is recorded and starts in a moment." : "The run reads the usage and plans the reports.";
  }
  const count = `${reports.filter((state) => answered.includes(state)).length} of ${reports.length} ${reports.length === 1 ? "report" : "reports"} answered`;
  return last_error ? `${count}. The last attempt: ${inWords(last_error)}` : `${count}.`;
}
