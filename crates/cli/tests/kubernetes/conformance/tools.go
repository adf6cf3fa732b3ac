//go:build tools

package conformance

import _ "sigs.k8s.io/gateway-api/conformance/echo-basic"
