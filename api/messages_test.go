package api_test

import (
	"os"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestEachMessageKindIsInSchemaExamplesClientsAndDocs checks that each kind of message has a schema, an example and a
// type in each client. The docs have a line and the dashboard has a choice for it.
func TestEachMessageKindIsInSchemaExamplesClientsAndDocs(t *testing.T) {
	t.Parallel()
	d, schemas := describedAPI(t)
	for _, kind := range append(metering.MessageKind("").Values(), metering.MessageWebhookTest) {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			require.Regexp(t, `^[a-z_]+\.[a-z]+$`, kind, "a noun and a participle")
			name := path.Base(d.Webhooks[string(kind)]["post"].RequestBody.Content["application/json"].Schema.Ref)
			require.Equal(t, []any{string(kind)}, schemas[name].Value.Properties["type"].Value.Enum)
			require.Equal(t, "#/components/schemas/"+name, schemas["Message"].Value.Discriminator.Mapping[string(kind)].Ref)
			example, ok := d.Components.Examples[name].Value.(map[string]any)
			require.True(t, ok, "no example of %s", name)
			require.Equal(t, string(kind), example["type"])
			places := map[string]string{
				"../client/client.gen.go":                             "type " + name + " struct",
				"../client/typescript/schema.gen.ts":                  name + ": {",
				"../client/python/src/odometer_client/schema.py":      "class " + name + "(TypedDict)",
				"../docs/api/webhooks.md":                             "| `" + string(kind) + "` |",
				"../dashboard/src/screens/developers/WebhookForm.tsx": `"` + string(kind) + `": "`,
			}
			if kind == metering.MessageWebhookTest {
				delete(places, "../dashboard/src/screens/developers/WebhookForm.tsx") // cannot be chosen
			}
			for file, want := range places {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Contains(t, string(text), want, file)
			}
		})
	}
}
