// net/http with HTTP/1.1 or HTTP/2: fetches every URL of a list and compares every byte.
//
// The list's lines are a URL and the file that must come. Says how many were right.
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
	gets := strings.Fields(string(read(list)))
	for at := 0; at < len(gets); at += 2 {
		url, wanted := gets[at], read(gets[at+1])
		response, err := client.Get(url)
		if err != nil {
			log.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		if err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK || response.Proto != which || !bytes.Equal(got, wanted) {
			log.Fatalf("%s: %s over %s, or wrong bytes", url, response.Status, response.Proto)
		}
	}
	fmt.Println(len(gets) / 2)
}

func read(path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	return text
}
