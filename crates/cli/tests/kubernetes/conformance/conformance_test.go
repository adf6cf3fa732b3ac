// The conformance suite of the Gateway API, as a program: `go test -c`. Its options are in
// sigs.k8s.io/gateway-api/conformance/utils/flags.
package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

func TestConformance(t *testing.T) {
	conformance.RunConformance(t)
}
