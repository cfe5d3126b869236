package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// program is a testing.TB for commands that use test helpers.
type program struct {
	testing.TB // nil: only the methods below can be called
	ctx        context.Context

	mu       sync.Mutex
	failure  error
	cleanups []func()
}

// Run calls do outside a test, so that a command can use test helpers. It runs the cleanups and returns the
// failures.
func Run(ctx context.Context, do func(testing.TB)) error {
	ctx, cancel := context.WithCancel(ctx)
	p := &program{ctx: ctx}
	p.alone(func() { do(p) })
	cancel()
	for _, clean := range slices.Backward(p.cleanups) {
		p.alone(clean)
	}
	return p.failure
}

// alone calls a function in a separate goroutine, because FailNow ends the goroutine.
func (p *program) alone(do func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
	}()
	<-ended
}

func (*program) Helper()                    {}
func (*program) Name() string               { return "drill" }
func (p *program) Context() context.Context { return p.ctx }
func (p *program) Fatal(args ...any)        { p.Fatalf("%s", fmt.Sprint(args...)) }

func (p *program) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	p.FailNow()
}

func (p *program) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = errors.Join(p.failure, fmt.Errorf(format, args...))
}

func (p *program) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (*program) FailNow() { runtime.Goexit() }

func (p *program) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure != nil
}

func (p *program) Cleanup(clean func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, clean)
}

func (p *program) TempDir() string {
	folder, err := os.MkdirTemp("", "odometer-drill-*")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}
