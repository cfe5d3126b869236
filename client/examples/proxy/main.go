// Command proxy meters and limits the model at MODEL_URL and listens on PORT. Without MODEL_URL, it uses a
// fixed answer instead of a model. ODOMETER_URL and ODOMETER_KEY select the API.
package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/client/examples"
)

func main() {
	odometer, err := client.NewClientWithResponses(os.Getenv("ODOMETER_URL"), client.WithRequestEditorFn(
		func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+os.Getenv("ODOMETER_KEY"))
			return nil
		}))
	if err != nil {
		log.Fatal(err)
	}
	quotas, err := client.NewQuotas(odometer, client.OnErrorDeny, 0, client.QuotasOptions{})
	if err != nil {
		log.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", os.Getenv("PORT"))
	model := os.Getenv("MODEL_URL")
	if model == "" {
		model = "http://" + address + "/model"
		http.HandleFunc("/model", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"model":"large","usage":{"total_tokens":460}}`)
		})
	}
	http.Handle("/", examples.ProxyModel(quotas, model))
	server := http.Server{Addr: address, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
