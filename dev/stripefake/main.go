// Command stripefake runs the stateful fake of Stripe on LISTEN_ADDRESS. It
// begins empty: POST /_seed says what it knows.
package main

import (
	"log"
	"net/http"
	"os"
	"time"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

func main() {
	server := &http.Server{
		Addr:              os.Getenv("LISTEN_ADDRESS"),
		Handler:           stripetest.New(stripetest.Options{}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Printf("Stripe fake on %s", server.Addr)
	log.Fatal(server.ListenAndServe())
}
