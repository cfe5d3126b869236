package metering

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// zoneinfo is the IANA time zone database, version 2025c. It is the file
// lib/time/zoneinfo.zip of Go 1.26.8; a newer Go replaces it.
//
// time.LoadLocation is not used because it prefers the host's files: two hosts
// could compute different billing periods for one tenant.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

// zoneFiles returns the files of the time zones by name.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic(fmt.Sprintf("open zoneinfo.zip: %v", err)) // the file is part of the program
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, file := range archive.File {
		if !strings.HasSuffix(file.Name, "/") && file.Name != "Factory" { // a placeholder for hosts without a zone
			files[file.Name] = file
		}
	}
	return files
})

// ZoneNames returns the names of all time zones, sorted.
func ZoneNames() []string { return slices.Sorted(maps.Keys(zoneFiles())) }

var loadedZones sync.Map // *time.Location by name

// LoadLocation returns the time zone with an IANA name, such as Europe/Zurich.
func LoadLocation(name string) (*time.Location, error) {
	if name == "UTC" {
		return time.UTC, nil
	}
	loaded, _ := loadedZones.Load(name)
	if location, ok := loaded.(*time.Location); ok {
		return location, nil
	}
	file, known := zoneFiles()[name]
	if !known {
		return nil, fmt.Errorf("unknown time zone %q", name)
	}
	reader, err := file.Open()
	if err != nil {
		return nil, fmt.Errorf("open time zone %q: %w", name, err)
	}
	defer reader.Close()
	data, err := io.ReadAll(reader)
	if err != nil {
		return nil, fmt.Errorf("read time zone %q: %w", name, err)
	}
	location, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("parse time zone %q: %w", name, err)
	}
	loadedZones.Store(name, location)
	return location, nil
}

// Location returns the time zone with a name that was validated when it was
// stored. An unknown name is UTC.
func Location(name string) *time.Location {
	location, err := LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return location
}
