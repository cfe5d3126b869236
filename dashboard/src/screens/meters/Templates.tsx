import { Button } from "@mantine/core";
import styles from "./Templates.module.css";
import { templates, type Template } from "./meterTemplates";

const sources = [...new Set(templates.map(({ source }) => source))];

/** Lists the templates for a meter, and explains the selected one. */
export function Templates({ chosen, choose }: { chosen: Template | undefined; choose: (template: Template) => void }) {
  return (
    <section aria-labelledby="templates" className={styles.templates}>
      <h2 id="templates">Start from a template</h2>
      <p className="muted">A template fills in the form. Adapt the form to your events.</p>
      {sources.map((source) => (
        <div key={source} role="group" aria-label={source} className={styles.source}>
          <span className="muted">{source}</span>
          {templates
            .filter((template) => template.source === source)
            .map((template) => (
              <Button key={template.title} variant="default" size="xs" aria-pressed={template === chosen} onClick={() => choose(template)}>
                {template.title}
              </Button>
            ))}
        </div>
      ))}
      <div role="status">{chosen && <ChosenTemplate template={chosen} />}</div>
    </section>
  );
}

/** Shows an event that the template counts, and the template's note. */
function ChosenTemplate({ template: { event, note } }: { template: Template }) {
  return (
    <div className={styles.chosen}>
      <p>This template counts events such as:</p>
      <pre className="mono" tabIndex={0} role="group" aria-label="An event">
        {JSON.stringify(event, undefined, 2)}
      </pre>
      {note && <p>{note}</p>}
    </div>
  );
}
