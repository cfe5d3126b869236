package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const readyTimeout = 5 * time.Second

// ready checks /readyz of a process, for container images without a shell. It returns an error unless the
// process is ready.
func ready(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("ready needs one argument, the URL of an API or a worker, such as odometer ready http://127.0.0.1:8080")
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0]+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(out, io.LimitReader(response.Body, 4<<10)); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s/readyz returned status %d, not 200", args[0], response.StatusCode)
	}
	return nil
}
