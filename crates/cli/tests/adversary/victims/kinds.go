package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const host = "shop.example.com"

const (
	tls12 = tls.VersionTLS12
	tls13 = tls.VersionTLS13
)

// Of a body that is sent in parts, with a pause between them, so that uploads are under way at most times.
const (
	parts      = 4
	partLength = 16 << 10
)

var uploads atomic.Int64

// Session makes what is exchanged on a connection.
type Session func(connection net.Conn, answers *bufio.Reader) Exchange

func plain(vip string, session Session) Make {
	return func() (net.Conn, Exchange, error) {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(vip, "80"), patience)
		if err != nil {
			return nil, nil, err
		}
		return connection, session(connection, bufio.NewReader(connection)), nil
	}
}

// Go's default hello, but for the version.
func configuration(authority string, version uint16) (*tls.Config, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	certificates := x509.NewCertPool()
	certificates.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: certificates, ServerName: host, MaxVersion: version}, nil
}

func secure(vip, authority string, version uint16, session Session) Make {
	return func() (net.Conn, Exchange, error) {
		config, err := configuration(authority, version)
		if err != nil {
			return nil, nil, err
		}
		dialer := net.Dialer{Timeout: patience}
		connection, err := tls.DialWithDialer(&dialer, "tcp", net.JoinHostPort(vip, "443"), config)
		if err != nil {
			return nil, nil, err
		}
		if got := connection.ConnectionState().Version; got != version {
			return nil, nil, fmt.Errorf("TLS of version %#x", got)
		}
		return connection, session(connection, bufio.NewReader(connection)), nil
	}
}

func send(to io.Writer, method, path, more string) error {
	_, err := fmt.Fprintf(to, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", method, path, host, more)
	return err
}

func receive(from *bufio.Reader, path string) error {
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %d bytes, then %w", path, len(body), err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return same(path, body)
}

func get(connection net.Conn, answers *bufio.Reader, path string) error {
	if err := send(connection, "GET", path, ""); err != nil {
		return err
	}
	return receive(answers, path)
}

func keepAlive(connection net.Conn, answers *bufio.Reader) Exchange {
	return func(int) error { return get(connection, answers, "/small") }
}

func between(connection net.Conn, answers *bufio.Reader) Exchange {
	return func(number int) error {
		return get(connection, answers, []string{"/small", "/img/small"}[number%2])
	}
}

func pipelining(connection net.Conn, answers *bufio.Reader) Exchange {
	paths := []string{"/small", "/small", "/img/small", "/small"}
	return func(int) error {
		var requests bytes.Buffer
		for _, path := range paths {
			send(&requests, "GET", path, "")
		}
		if _, err := connection.Write(requests.Bytes()); err != nil {
			return err
		}
		for _, path := range paths {
			if err := receive(answers, path); err != nil {
				return err
			}
		}
		return nil
	}
}

// A response that is read slowly, so that it is under way at most times.
func download(connection net.Conn, answers *bufio.Reader) Exchange {
	return func(int) error {
		if err := send(connection, "GET", "/1m", ""); err != nil {
			return err
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			return err
		}
		var body bytes.Buffer
		for {
			_, err := io.CopyN(&body, response.Body, 128<<10)
			if errors.Is(err, io.EOF) {
				return same("/1m", body.Bytes())
			}
			if err != nil {
				return fmt.Errorf("/1m: %d bytes, then %w", body.Len(), err)
			}
			time.Sleep(pause)
		}
	}
}

// What has been sent is then read back.
func upload(chunked bool) Session {
	path := fmt.Sprintf("/upload-%d", uploads.Add(1))
	return func(connection net.Conn, answers *bufio.Reader) Exchange {
		return func(int) error {
			body := make([]byte, parts*partLength)
			rand.Read(body)
			framing := fmt.Sprintf("Content-Length: %d\r\n", len(body))
			if chunked {
				framing = "Transfer-Encoding: chunked\r\n"
			}
			if err := send(connection, "PUT", path, framing); err != nil {
				return err
			}
			for at := 0; at < len(body); at += partLength {
				time.Sleep(pause)
				part := body[at : at+partLength]
				if chunked {
					part = append(fmt.Appendf(nil, "%x\r\n", len(part)), append(part[:len(part):len(part)], "\r\n"...)...)
				}
				if _, err := connection.Write(part); err != nil {
					return err
				}
			}
			if chunked {
				if _, err := io.WriteString(connection, "0\r\n\r\n"); err != nil {
					return err
				}
			}
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				return err
			}
			io.Copy(io.Discard, response.Body)
			if response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusNoContent {
				return fmt.Errorf("PUT %s: %s", path, response.Status)
			}
			if err := send(connection, "GET", path, ""); err != nil {
				return err
			}
			if response, err = http.ReadResponse(answers, nil); err != nil {
				return err
			}
			arrived, err := io.ReadAll(response.Body)
			if err == nil && !bytes.Equal(arrived, body) {
				err = fmt.Errorf("%s: what has arrived is not what was sent", path)
			}
			return err
		}
	}
}

// The key of RFC 6455 section 1.3.
const (
	websocketKey = "dGhlIHNhbXBsZSBub25jZQ=="
	websocketID  = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

func websocket(vip string) Make {
	return func() (net.Conn, Exchange, error) {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(vip, "80"), patience)
		if err != nil {
			return nil, nil, err
		}
		connection.SetDeadline(time.Now().Add(patience))
		upgrade := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
			websocketKey + "\r\n"
		if err := send(connection, "GET", "/echo", upgrade); err != nil {
			return nil, nil, err
		}
		answers := bufio.NewReader(connection)
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			return nil, nil, err
		}
		sum := sha1.Sum([]byte(websocketKey + websocketID))
		if response.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
			return nil, nil, fmt.Errorf("no WebSocket: %s", response.Status)
		}
		return connection, func(int) error { return echo(connection, answers) }, nil
	}
}

const (
	opBinary = 0x82
	opPing   = 0x89
	opPong   = 0x8a
)

// One binary message and its echo, with 16-bit lengths and a mask of zeros (RFC 6455 section 5.2).
func echo(connection net.Conn, answers *bufio.Reader) error {
	message := make([]byte, 1000)
	rand.Read(message)
	frame := append(binary.BigEndian.AppendUint16([]byte{opBinary, 0x80 | 126}, uint16(len(message))), 0, 0, 0, 0)
	if _, err := connection.Write(append(frame, message...)); err != nil {
		return err
	}
	for {
		var head [2]byte
		if _, err := io.ReadFull(answers, head[:]); err != nil {
			return err
		}
		length := uint16(head[1])
		if length == 126 {
			if err := binary.Read(answers, binary.BigEndian, &length); err != nil {
				return err
			}
		}
		payload := make([]byte, length)
		if _, err := io.ReadFull(answers, payload); err != nil {
			return err
		}
		if head[0] == opPing {
			if _, err := connection.Write(append([]byte{opPong, 0x80 | head[1], 0, 0, 0, 0}, payload...)); err != nil {
				return err
			}
			continue
		}
		if head[0] != opBinary || !bytes.Equal(payload, message) {
			return errors.New("another message comes back")
		}
		return nil
	}
}

// Four requests at a time for both pools, on one connection; another one would be a loss.
func http2(vip, authority string) Make {
	return func() (net.Conn, Exchange, error) {
		config, err := configuration(authority, tls13)
		if err != nil {
			return nil, nil, err
		}
		config.NextProtos = []string{"h2"}
		dialer := net.Dialer{Timeout: patience}
		connection, err := tls.DialWithDialer(&dialer, "tcp", net.JoinHostPort(vip, "443"), config)
		if err != nil {
			return nil, nil, err
		}
		var dialled atomic.Bool
		client := http.Client{Transport: &http.Transport{
			ForceAttemptHTTP2: true,
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
				if dialled.Swap(true) {
					return nil, errors.New("the connection is lost")
				}
				return connection, nil
			},
		}}
		exchange := func(number int) error {
			failed := make(chan error)
			paths := []string{"/small", "/img/small", "/img/small", "/small"}
			if number%8 == 0 {
				paths[3] = "/1m"
			}
			for _, path := range paths {
				go func(path string) { failed <- fetch(&client, path) }(path)
			}
			var first error
			for range paths {
				if err := <-failed; err != nil && first == nil {
					first = err
				}
			}
			return first
		}
		// The transport begins its streams itself, one request before the others.
		connection.SetDeadline(time.Now().Add(patience))
		return connection, exchange, fetch(&client, "/small")
	}
}

func fetch(client *http.Client, path string) error {
	response, err := client.Get("https://" + host + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %d bytes, then %w", path, len(body), err)
	}
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s over %s", path, response.Status, response.Proto)
	}
	return same(path, body)
}
