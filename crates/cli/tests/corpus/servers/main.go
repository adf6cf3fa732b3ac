// Says in X-Saw which host and path it was asked for.
package main

import (
	"io"
	"net/http"
	"os"
)

func main() {
	answer := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Saw", r.Host+"|"+r.URL.EscapedPath())
	}
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(answer)))
}
