// As in a module, which this is not.
//
//go:debug default=go1.24

// Clients of a service, each with one long-lived connection, that compare every byte and forgive nothing.
//
//	victims VIP AUTHORITY DOCUMENTS
//
// DOCUMENTS is the directory of what the servers have under /small, /1m, /img/small and /img/1m. For each line on stdin
// comes a line with an array of what has become of each victim; at the end of stdin the program ends.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// An answer that takes longer is lost.
// A TCP that has sent its data six times waits longer than ten seconds for the next time.
const patience = 30 * time.Second

// Between an answer and the next request.
const pause = 20 * time.Millisecond

// Victim is one connection and what has become of it.
type Victim struct {
	mutex sync.Mutex
	state State
}

// State of a victim, as it is told.
type State struct {
	Name string `json:"name"`
	// Client and VIP as the client's kernel has them.
	Client string `json:"client"`
	VIP    string `json:"vip"`
	// Requests, or messages, answered with the right bytes.
	Done int `json:"done"`
	// The longest that one of them took.
	LongestMs int64 `json:"longest_ms"`
	// Why the victim has ended, if it has.
	Error string `json:"error"`
}

// Exchange is one request and its answer, or several, on the connection that the victim has.
type Exchange func(number int) error

// Make opens a connection and says what is exchanged on it.
type Make func() (net.Conn, Exchange, error)

func (victim *Victim) run(make Make) {
	connection, exchange, err := make()
	if err != nil {
		victim.fail(err, 0)
		return
	}
	victim.mutex.Lock()
	victim.state.Client = connection.LocalAddr().String()
	victim.state.VIP = connection.RemoteAddr().String()
	victim.mutex.Unlock()
	for number := 0; ; number++ {
		start := time.Now()
		connection.SetDeadline(start.Add(patience))
		if err := exchange(number); err != nil {
			victim.fail(err, time.Since(start))
			return
		}
		victim.mutex.Lock()
		victim.state.Done++
		if took := time.Since(start).Milliseconds(); took > victim.state.LongestMs {
			victim.state.LongestMs = took
		}
		victim.mutex.Unlock()
		time.Sleep(pause)
	}
}

func (victim *Victim) fail(err error, after time.Duration) {
	victim.mutex.Lock()
	defer victim.mutex.Unlock()
	victim.state.Error = fmt.Sprintf("%v after %v", err, after)
}

func (victim *Victim) look() State {
	victim.mutex.Lock()
	defer victim.mutex.Unlock()
	return victim.state
}

var documents = map[string][]byte{}

func same(path string, got []byte) error {
	if !bytes.Equal(got, documents[path]) {
		return fmt.Errorf("%s: %d bytes that are not the document", path, len(got))
	}
	return nil
}

func main() {
	vip, authority, directory := os.Args[1], os.Args[2], os.Args[3]
	for _, path := range []string{"/small", "/1m", "/img/small", "/img/1m"} {
		body, err := os.ReadFile(filepath.Join(directory, path))
		if err != nil {
			log.Fatal(err)
		}
		documents[path] = body
	}
	kinds := []struct {
		name string
		make Make
	}{
		{"keep-alive", plain(vip, keepAlive)},
		{"keep-alive between pools", plain(vip, between)},
		{"pipelining", plain(vip, pipelining)},
		{"download", plain(vip, download)},
		{"upload with Content-Length", plain(vip, upload(false))},
		{"chunked upload", plain(vip, upload(true))},
		{"WebSocket", websocket(vip)},
		{"TLS 1.2", secure(vip, authority, tls12, keepAlive)},
		{"TLS 1.3", secure(vip, authority, tls13, keepAlive)},
		{"TLS 1.2 between pools", secure(vip, authority, tls12, between)},
		{"TLS 1.3 between pools", secure(vip, authority, tls13, between)},
		{"TLS 1.3 chunked upload", secure(vip, authority, tls13, upload(true))},
		{"HTTP/2", http2(vip, authority)},
	}
	var victims []*Victim
	for _, kind := range kinds {
		victim := &Victim{state: State{Name: kind.name}}
		victims = append(victims, victim)
		go victim.run(kind.make)
	}
	for lines := bufio.NewReader(os.Stdin); ; {
		if _, err := lines.ReadString('\n'); err == io.EOF {
			return
		}
		var states []State
		for _, victim := range victims {
			states = append(states, victim.look())
		}
		if err := json.NewEncoder(os.Stdout).Encode(states); err != nil {
			return
		}
	}
}
