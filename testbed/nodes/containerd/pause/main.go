// The sandbox of every pod of `make e2e`, and its workload: waits for SIGTERM. On LISTEN, if that is set, it answers
// every request with its host name.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	if address := os.Getenv("LISTEN"); address != "" {
		name, _ := os.Hostname()
		server := &http.Server{
			Addr:              address,
			ReadHeaderTimeout: 5 * time.Second,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintln(w, name)
			}),
		}
		go func() {
			fmt.Fprintln(os.Stderr, server.ListenAndServe())
			os.Exit(1)
		}()
	}
	<-end
}
