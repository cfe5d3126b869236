import styles from "./states.module.css";

/** Shows placeholder rows with the height of the expected rows, so that the layout does not shift. */
export function LoadingRows({ columns, rows = 8 }: { columns: number; rows?: number | undefined }) {
  return (
    <tbody aria-hidden="true">
      {Array.from({ length: rows }, (_, row) => (
        <tr key={row}>
          {Array.from({ length: columns }, (_, column) => (
            <td key={column}>
              <span className={styles.bar} data-loading />
            </td>
          ))}
        </tr>
      ))}
    </tbody>
  );
}

/** Shows a placeholder for a line of text. */
export function LoadingText() {
  return <span className={styles.bar} data-loading aria-hidden="true" />;
}
