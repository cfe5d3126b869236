package lint_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	baseImage   = regexp.MustCompile(`(?m)^FROM (\S+:\S+)`)
	portDefault = regexp.MustCompile(`\$\{\w+_PORT:=(\d+)\}`)
)

// TestDevelopmentContainerFitsRepository checks that the development container has the Go release of go.mod and
// images of the Dockerfile, runs the set-up of CONTRIBUTING.md, and forwards the ports of make up.
func TestDevelopmentContainerFitsRepository(t *testing.T) {
	t.Parallel()
	var container struct {
		PostCreateCommand string
		ForwardPorts      []json.Number
		PortsAttributes   map[json.Number]struct{ Label string }
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, ".devcontainer/devcontainer.json")), &container))
	require.Contains(t, read(t, "CONTRIBUTING.md"), "Run `"+container.PostCreateCommand+"`")
	images := firstGroups(baseImage, read(t, ".devcontainer/Dockerfile"))
	require.Subset(t, firstGroups(baseImage, read(t, "Dockerfile")), images)
	release := firstGroups(regexp.MustCompile(`(?m)^go (\d+\.\d+)`), read(t, "go.mod"))[0]
	require.Contains(t, images[len(images)-1], "golang:"+release+".")

	var ports []json.Number
	for _, port := range firstGroups(portDefault, read(t, "dev/up")) {
		ports = append(ports, json.Number(port))
		require.NotEmpty(t, container.PortsAttributes[json.Number(port)].Label, port)
	}
	require.NotEmpty(t, ports)
	require.ElementsMatch(t, ports, container.ForwardPorts)
	require.ElementsMatch(t, ports, slices.Collect(maps.Keys(container.PortsAttributes)))
}

// firstGroups returns the first group of each match.
func firstGroups(pattern *regexp.Regexp, text string) (groups []string) {
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		groups = append(groups, match[1])
	}
	return groups
}
