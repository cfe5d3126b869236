package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// faults is the list of known faults, in JSON. The rules of package billing, or the simulated provider and
// database, once had these faults. Mutate restores each fault by edits, and the simulated lives must detect it.
//
//go:embed faults.json
var faults []byte

// knownFault is one entry of faults.json.
type knownFault struct {
	Name  string `json:"name"`
	Edits []edit `json:"edits"`
}

// edit replaces a text that occurs exactly once in a file.
type edit struct {
	File    string `json:"file"`
	Was     string `json:"was"`
	Becomes string `json:"becomes"`
}

// readFaults returns the known faults with a name that matches the expression.
func readFaults(chosen *regexp.Regexp) (all []knownFault, err error) {
	var known []knownFault
	if err := json.Unmarshal(faults, &known); err != nil {
		return nil, err
	}
	for _, f := range known {
		if chosen.MatchString(f.Name) {
			all = append(all, f)
		}
	}
	return all, nil
}

// files returns the changed files of the folder, by path, with their new content.
func (f knownFault) files(folder string) (map[string]string, error) {
	files := make(map[string]string)
	for _, e := range f.Edits {
		path := filepath.Join(folder, e.File)
		source, edited := files[path]
		if !edited {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			source = string(text)
		}
		if n := strings.Count(source, e.Was); n != 1 {
			return nil, fmt.Errorf("%s: %q stands %d times in %s", f.Name, e.Was, n, path)
		}
		files[path] = strings.Replace(source, e.Was, e.Becomes, 1)
	}
	return files, nil
}

// tryFaults restores the faults, one at a time, and simulates lives until one fails. It returns an error if the
// lives do not detect a fault.
func tryFaults(ctx context.Context, folder string, chosen *regexp.Regexp, lives int) error {
	all, err := readFaults(chosen)
	if err != nil {
		return err
	}
	fmt.Printf("| fault | lives | seed |\n|---|---|---|\n")
	var survived []string
	for _, f := range all {
		seed, err := f.found(ctx, folder, lives)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if seed == "" {
			survived = append(survived, f.Name)
			seed = "NONE"
		}
		fmt.Printf("| %s | %s of %d | %s |\n", f.Name, seed, lives, seed)
	}
	if len(survived) > 0 {
		return fmt.Errorf("%d faults were found by no life: %s", len(survived), strings.Join(survived, "; "))
	}
	return nil
}

// seeds matches the seed in the output of a failed life.
var seeds = regexp.MustCompile(`SEED=(\d+)`)

// found returns the seed of the first life that fails with the fault, or "" if none does. Seeds begin at 1.
func (f knownFault) found(ctx context.Context, folder string, lives int) (seed string, err error) {
	files, err := f.files(folder)
	if err != nil {
		return "", err
	}
	tests, err := build(ctx, folder, files, lives)
	defer os.RemoveAll(tests.dir)
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, tests.program(), "-test.short", "-test.run", "^TestPropertyLives$")
	command.Dir = folder
	command.Env = append(os.Environ(), fmt.Sprintf("LIVES=%d", lives), "SEED=1")
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", err
	}
	if found := seeds.FindSubmatch(output); found != nil {
		return string(found[1]), nil
	}
	return "", ctx.Err()
}
