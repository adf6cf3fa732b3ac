// net/http with eight goroutines that share a client: fetches every URL of a list and compares every byte.
//
// The list's lines are a URL and the file that must come. Says how many were right.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const atATime = 8

var client = http.Client{
	Timeout:   10 * time.Second,
	Transport: &http.Transport{MaxConnsPerHost: atATime, MaxIdleConnsPerHost: atATime},
}

func main() {
	list, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	gets := strings.Fields(string(list))
	next := make(chan []string)
	var workers sync.WaitGroup
	for worker := 0; worker < atATime; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for get := range next {
				if err := fetch(get[0], get[1]); err != nil {
					log.Fatal(err)
				}
			}
		}()
	}
	for at := 0; at < len(gets); at += 2 {
		next <- gets[at : at+2]
	}
	close(next)
	workers.Wait()
	fmt.Println(len(gets) / 2)
}

func fetch(url, path string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	wanted, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || !bytes.Equal(got, wanted) {
		return fmt.Errorf("%s: %s, or wrong bytes", url, response.Status)
	}
	return nil
}
