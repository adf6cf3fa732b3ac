// A server with Go's defaults: since Go 1.24 it listens with MPTCP.
package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
)

func main() {
	large := strings.Repeat("0123456789abcdef", 1<<16)
	http.HandleFunc("/1m", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, large) })
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		w.Header().Set("x-client", host)
		// Go sends nothing while it reads.
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	})
	log.Fatal(http.ListenAndServe(":"+os.Args[1], nil))
}
