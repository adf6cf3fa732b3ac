// net/http with HTTP/1.1 or HTTP/2: makes every request of a list and compares every byte.
//
// The list's lines are a method, a URL and the file that must come, or that is sent. Says how many were right.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	which, vip, authority, list := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	certificates := x509.NewCertPool()
	certificates.AppendCertsFromPEM(read(authority))
	dialer := net.Dialer{Timeout: 10 * time.Second}
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: certificates},
		ForceAttemptHTTP2: which == "HTTP/2.0",
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, net.JoinHostPort(vip, "443"))
		},
	}}
	transfers := strings.Fields(string(read(list)))
	for at := 0; at < len(transfers); at += 3 {
		method, url, document := transfers[at], transfers[at+1], read(transfers[at+2])
		var body io.Reader
		if method == http.MethodPut {
			body = bytes.NewReader(document)
		}
		request, err := http.NewRequest(method, url, body)
		if err != nil {
			log.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			log.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		if err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		right := response.StatusCode == http.StatusCreated
		if method == http.MethodGet {
			right = response.StatusCode == http.StatusOK && bytes.Equal(got, document)
		}
		if !right || response.Proto != which {
			log.Fatalf("%s %s: %s over %s, or wrong bytes", method, url, response.Status, response.Proto)
		}
	}
	fmt.Println(len(transfers) / 3)
}

func read(path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	return text
}
