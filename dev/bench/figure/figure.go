// Package figure compares measurements with their baselines, and stores the results in a file.
package figure

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Figure is the result of rounds in which the program and its baseline were measured. Ours and Baseline are
// medians. Ratio is the median of the rounds' ratios.
type Figure struct {
	Name     string  `json:"name"`
	Ours     float64 `json:"ours"`
	Baseline float64 `json:"baseline"`
	Unit     string  `json:"unit"`
	Ratio    float64 `json:"ratio"`

	lowest, highest float64
	rounds          int
}

// Compare returns the figure of rounds. The values of a round have the same index in ours and baseline.
func Compare(name, unit string, ours, baseline []float64) Figure {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / baseline[i]
	}
	return Figure{
		name, Median(ours), Median(baseline), unit, Median(ratios),
		slices.Min(ratios), slices.Max(ratios), len(ratios),
	}
}

// Median returns the median of values, or 0 if there are none.
func Median[T cmp.Ordered](values []T) T { return quantile(values, len(values)/2) }

// P99 returns the 99th percentile of values, or 0 if there are none.
func P99[T cmp.Ordered](values []T) T { return quantile(values, (len(values)*99+99)/100-1) }

func quantile[T cmp.Ordered](values []T, index int) (value T) {
	if len(values) == 0 {
		return value
	}
	return slices.Sorted(slices.Values(values))[index]
}

// String returns the figure with its lowest and highest ratio.
func (f Figure) String() string {
	return fmt.Sprintf("%-30s ours %s, baseline %s %s; ratio %.2g (%.2g to %.2g in %d rounds)",
		f.Name, short(f.Ours), short(f.Baseline), f.Unit, f.Ratio, f.lowest, f.highest, f.rounds)
}

// short returns a value with one decimal below 100, and without decimals otherwise.
func short(value float64) string {
	if value < 100 {
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.0f", value)
}

// Keep adds figures to a file. A figure replaces the stored figure with the same name.
func Keep(path string, figures ...Figure) error {
	var kept []Figure
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read figures: %w", err)
	}
	for _, f := range figures {
		kept = slices.DeleteFunc(kept, func(k Figure) bool { return k.Name == f.Name })
	}
	if text, err = json.MarshalIndent(append(kept, figures...), "", "  "); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
