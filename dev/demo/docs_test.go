package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocsPicturesAreThereAndSmall(t *testing.T) {
	shown := regexp.MustCompile(`!\[[^\]]+\]\((pictures/\S+\.png)\)`).FindAllStringSubmatch(read(t, "docs/operators.md"), -1)
	kept, err := filepath.Glob(filepath.Join(root, "docs/pictures/*"))
	require.NoError(t, err)
	require.Len(t, shown, len(kept))
	for _, picture := range shown {
		text, err := os.ReadFile(filepath.Join(root, "docs", picture[1]))
		require.NoError(t, err)
		require.Less(t, len(text), 120<<10, picture[1])
		config, err := png.DecodeConfig(bytes.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, 1280, config.Width, picture[1])
	}
}
