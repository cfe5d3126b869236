// Command stripefake runs the stateful fake of Stripe on LISTEN_ADDRESS. It begins empty: POST /_seed adds
// objects. With JOURNAL, a file, it keeps its state across restarts.
package main

import (
	"log"
	"net/http"
	"os"
	"time"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

func main() {
	fake := stripetest.New(stripetest.Options{})
	if path := os.Getenv("JOURNAL"); path != "" {
		journal, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			log.Fatal(err)
		}
		if err := fake.Resume(journal); err != nil {
			log.Fatal(err)
		}
	}
	server := &http.Server{
		Addr:              os.Getenv("LISTEN_ADDRESS"),
		Handler:           fake,
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Printf("Stripe fake on %s", server.Addr)
	log.Fatal(server.ListenAndServe())
}
