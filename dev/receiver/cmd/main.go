// Command cmd runs the webhook receiver on LISTEN_ADDRESS. It verifies signatures with WEBHOOK_SECRET.
package main

import (
	"log"
	"net/http"
	"os"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/odometer-metering/odometer/dev/receiver"
)

func main() {
	secret := os.Getenv("WEBHOOK_SECRET")
	if _, err := standardwebhooks.NewWebhook(secret); err != nil || secret == "" {
		log.Fatal(`WEBHOOK_SECRET must be "whsec_" and base64`)
	}
	server := &http.Server{
		Addr:              os.Getenv("LISTEN_ADDRESS"),
		Handler:           receiver.New(secret),
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Printf("webhook receiver on %s", server.Addr)
	log.Fatal(server.ListenAndServe())
}
