// The conformance suite of the Gateway API, as a program: `go test -c`. Its options are in
// sigs.k8s.io/gateway-api/conformance/utils/flags; USABLE_ADDRESS and UNUSABLE_ADDRESS are those of the test of static
// addresses, which have no option.
package conformance

import (
	"os"
	"testing"

	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
)

func address(name string) []v1.GatewaySpecAddress {
	kind := v1.IPAddressType
	return []v1.GatewaySpecAddress{{Type: &kind, Value: os.Getenv(name)}}
}

func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	options.UsableNetworkAddresses = address("USABLE_ADDRESS")
	options.UnusableNetworkAddresses = address("UNUSABLE_ADDRESS")
	conformance.RunConformanceWithOptions(t, options)
}
