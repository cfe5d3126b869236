// Command helm lints a chart, renders it with the given values, decodes every object strictly into its
// Kubernetes type, and prints the result as JSON.
//
//	helm CHART RELEASE [VALUES.yaml…]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1/util"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

// namespace is the namespace of the rendered release.
const namespace = "production"

// rendered is the rendered release: hooks, which run first, other objects, and notes.
type rendered struct {
	Hooks   []json.RawMessage `json:"hooks"`
	Objects []json.RawMessage `json:"objects"`
	Notes   string            `json:"notes"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "helm CHART RELEASE [VALUES.yaml…]")
		os.Exit(2)
	}
	out, err := run(os.Args[1], os.Args[2], os.Args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}

// run lints and renders the chart in a folder as a release with the name.
func run(folder, name string, files []string) (*rendered, error) {
	linted, err := merged(files)
	if err != nil {
		return nil, err
	}
	if err := lintErrors(lint.RunAll(folder, linted, namespace)); err != nil {
		return nil, err
	}
	values, err := merged(files) // again: the linter adds defaults for values that were removed with null
	if err != nil {
		return nil, err
	}
	return render(folder, name, values)
}

// merged returns the merged values of all files. Later files override earlier ones.
func merged(files []string) (map[string]any, error) {
	values := map[string]any{}
	for _, file := range files {
		more, err := common.ReadValuesFile(file)
		if err != nil {
			return nil, err
		}
		values = loader.MergeMaps(values, more)
	}
	return values, nil
}

// lintErrors returns warnings as errors, as lint --strict does. It ignores a missing icon, which the linter
// reports with less severity than a warning.
func lintErrors(linter support.Linter) (err error) {
	for _, message := range linter.Messages {
		if message.Severity >= support.WarningSev {
			err = errors.Join(err, message)
		}
	}
	return err
}

// render renders the chart and decodes all objects.
func render(folder, name string, values map[string]any) (*rendered, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	full, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), chart, full)
	if err != nil {
		return nil, err
	}
	notes := path.Join(chart.Name(), "templates/NOTES.txt")
	out := &rendered{Notes: files[notes]}
	delete(files, notes)
	hooks, objects, err := release.SortManifests(files, nil, release.InstallOrder)
	if err != nil {
		return nil, err
	}
	kinds, err := newKinds()
	if err != nil {
		return nil, err
	}
	for _, hook := range hooks {
		object, err := kinds.decode(hook.Manifest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", hook.Path, err)
		}
		out.Hooks = append(out.Hooks, object)
	}
	for _, manifest := range objects {
		object, err := kinds.decode(manifest.Content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", manifest.Name, err)
		}
		out.Objects = append(out.Objects, object)
	}
	return out, nil
}

// kinds decodes the types that Kubernetes and the Prometheus Operator declare.
type kinds struct{ codecs serializer.CodecFactory }

func newKinds() (kinds, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, batch.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme, monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			return kinds{}, err
		}
	}
	return kinds{serializer.NewCodecFactory(scheme, serializer.EnableStrict)}, nil
}

// decode returns an error if the manifest has an unknown kind, or a field that is unknown, repeated or of
// the wrong type.
func (k kinds) decode(manifest string) (json.RawMessage, error) {
	if _, _, err := k.codecs.UniversalDeserializer().Decode([]byte(manifest), nil, nil); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSONStrict([]byte(manifest))
}
