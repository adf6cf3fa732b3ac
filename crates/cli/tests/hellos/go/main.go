// As in a module, which this is not.
//
//go:debug default=go1.24

// Fresh connections with crypto/tls as it is, one after the other, and a request on each. Says of each connection on a line
// "ok", or what went wrong.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

const host = "shop.example.com"

func once(vip string, config *tls.Config) error {
	const patience = 3 * time.Second
	dialer := net.Dialer{Timeout: patience}
	plain, err := dialer.Dial("tcp", net.JoinHostPort(vip, "443"))
	if err != nil {
		return err
	}
	defer plain.Close()
	plain.SetDeadline(time.Now().Add(patience))
	connection := tls.Client(plain, config)
	if _, err := fmt.Fprintf(connection, "GET /small HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", response.Status)
	}
	return nil
}

func main() {
	vip, authority := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		log.Fatal(err)
	}
	certificates := x509.NewCertPool()
	certificates.AppendCertsFromPEM(pem)
	for number := 0; number < count; number++ {
		if err := once(vip, &tls.Config{RootCAs: certificates, ServerName: host}); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("ok")
		}
	}
}
