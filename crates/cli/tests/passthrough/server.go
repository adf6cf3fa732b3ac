// A server over TLS that gives and takes the files of a directory, with what net/http does by default.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"path"
	"path/filepath"
)

func main() {
	certificate, root, name, addresses := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	files := http.FileServer(http.Dir(root))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Node", name)
		if r.Method != http.MethodPut {
			files.ServeHTTP(w, r)
			return
		}
		file, err := os.Create(filepath.Join(root, path.Base(r.URL.Path)))
		if err == nil {
			_, err = io.Copy(file, r.Body)
			file.Close()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	for _, address := range addresses {
		go func() {
			log.Fatal(http.ListenAndServeTLS(address, certificate+".pem", certificate+".key", handler))
		}()
	}
	select {}
}
