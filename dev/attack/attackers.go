package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
)

// orders is the environment variable with the attackers' task, in JSON. A process of this program that has the
// variable runs only the attackers.
const orders = "ATTACKERS_ORDERS"

// attackers is the task of a separate process with the lowest priority. Real attackers have their own
// machines, so the attackers' own work must not slow down the API.
type attackers struct {
	Target target        `json:"target"`
	Pause  time.Duration `json:"pause"` // between the attempts of an attacker
	Name   string        `json:"name"`  // name of the only attack; "": all attacks except madeAlone
}

// attack starts the attackers in a separate process, and waits for their first attempt. They run the attack with the
// name, or all attacks except madeAlone if the name is empty. end stops them and returns the number of their attempts.
func (d *drill) attack(name string, pause time.Duration) (end func() (attempts int)) {
	text, err := json.Marshal(attackers{Target: d.target, Pause: pause, Name: name})
	require.NoError(d, err)
	program, err := os.Executable()
	require.NoError(d, err)
	command := exec.Command("nice", "-n", "19", program)
	command.Env = append(os.Environ(), orders+"="+string(text))
	stdin, err := command.StdinPipe()
	require.NoError(d, err)
	stdout, err := command.StdoutPipe()
	require.NoError(d, err)
	var complained strings.Builder
	command.Stderr = &complained
	require.NoError(d, command.Start())
	lines := bufio.NewScanner(stdout)
	require.True(d, lines.Scan(), "no attempt was made")
	return func() (attempts int) {
		require.NoError(d, stdin.Close())
		lines.Scan()
		require.NoError(d, command.Wait(), complained.String())
		attempts, err := strconv.Atoi(lines.Text())
		require.NoError(d, err)
		return attempts
	}
}

// attackIfOrdered returns if the variable orders is not set. Otherwise, it runs the attackers until standard
// input ends, and exits. It prints a line after the first attempt, and the number of attempts at the end. The
// status is 1 if the API has answered an attack with status 500.
func attackIfOrdered() {
	text, is := os.LookupEnv(orders)
	if !is {
		return
	}
	var a attackers
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		fmt.Fprintln(os.Stderr, "attackers:", err)
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println(a.run(ctx, func() { fmt.Println("attacking") }))
	if brokenAnswers.Load() > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}

// run attacks until ctx ends, and calls began after the first attempt.
func (a attackers) run(ctx context.Context, began func()) (attempts int64) {
	var running sync.WaitGroup
	var made atomic.Int64
	for _, kind := range attacks {
		if a.Name != kind.name && (a.Name != "" || slices.Contains(madeAlone, kind.name)) {
			continue
		}
		for n := range kind.times {
			running.Go(func() {
				for wait(ctx, a.Pause) {
					kind.again(ctx, a.Target, n)
					if made.Add(1) == 1 {
						began()
					}
				}
			})
		}
	}
	running.Wait()
	return made.Load()
}
