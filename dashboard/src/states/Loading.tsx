import styles from "./states.module.css";

/** Rows of the height that those have which are awaited, so that nothing jumps. */
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

/** A line of text that is awaited. */
export function LoadingText() {
  return <span className={styles.bar} data-loading aria-hidden="true" />;
}
