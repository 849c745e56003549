// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/catalogue"
)

// networkIDs are the findings that kube-apiserver cannot connect to a server, of which connections
// from pods may show the cause.
var networkIDs = []string{"S06", "S10", "S11", "S13"}

// checkAttempts compares connections from the pod network with the error of kube-apiserver.
func checkAttempts(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		id := classify(catalogue.InMessage, conditionText(a))
		b := f.Backends[backendOf(a)]
		if !slices.Contains(networkIDs, id) || b == nil || b.Service == nil {
			return nil
		}
		endpoints := b.endpoints(portOf(a))
		var evidence []string
		var byService, byEndpoint, attempted bool
		for _, attempt := range f.Attempts {
			if attempt.ServerName != backendOf(a).ServerName() {
				continue
			}
			result := "is answered"
			if attempt.Error != "" {
				result = "fails: " + attempt.Error
			}
			evidence = append(evidence, fmt.Sprintf("a connection from a pod to %s %s", attempt.Address, result))
			switch isEndpoint := slices.Contains(endpoints, attempt.Address); {
			case !isEndpoint:
				attempted = true
				byService = byService || attempt.Error == ""
			default:
				byEndpoint = byEndpoint || attempt.Error == ""
			}
		}
		cause := ""
		switch {
		case byService:
			cause = "S18"
		case attempted && byEndpoint:
			cause = "S19"
		default: // a NetworkPolicy may reject the pod: the attempts are evidence, and no finding
			return nil
		}
		finding := about(a, cause, serviceObject(backendOf(a)), evidence[0])
		finding.Evidence = evidence
		return []Finding{finding}
	})
}

// checkEgress reports that kube-apiserver does not reach its konnectivity server.
func checkEgress(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		if f.EgressFailures <= 0 || !isTimeout(a) {
			return nil
		}
		return []Finding{about(a, "S17", serviceObject(backendOf(a)), fmt.Sprintf(
			`the metric apiserver_egress_dialer_dial_failure_count{stage="connect"} of kube-apiserver increased by %d in %s`,
			f.EgressFailures, egressInterval))}
	})
}
