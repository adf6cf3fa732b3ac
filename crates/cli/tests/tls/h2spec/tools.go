//go:build tools

// Package tools names what `make test` builds: h2spec, with the versions of go.sum.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
