// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"slices"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster"
)

// How findings call what they are about.
func apiServiceObject(a apiregistrationv1.APIService) string { return "APIService " + a.Name }
func endpointObject(e cluster.Endpoint) string               { return "endpoint " + e.Address }

func (o *observed) serviceObject() string {
	return "Service " + o.service.Namespace + "/" + o.service.Name
}

func (o *observed) proxyObject() string {
	return "front proxy " + o.proxy.Certificate.Subject.String()
}

// report runs the checks and counts what they found about each object.
func (o *observed) report() *Report {
	r := &Report{
		APIVersion: certs.APIVersion, Kind: "LiveReport", GeneratedAt: o.now.UTC().Truncate(time.Second),
		Service: o.service.Namespace + "/" + o.service.Name, Checked: o.checked(),
	}
	findings := verify.Sort(verify.Run(liveChecks, o, o.serviceObject()))
	for _, f := range findings {
		if !slices.ContainsFunc(r.Checked, func(c Checked) bool { return c.Object == f.Object }) {
			r.Checked = append(r.Checked, Checked{Object: f.Object})
		}
	}
	for i := range r.Checked {
		c := &r.Checked[i]
		c.Tally = verify.Count(slices.DeleteFunc(slices.Clone(findings), func(f verify.Finding) bool { return f.Object != c.Object }))
	}
	r.Results = verify.NewResults(findings, len(r.Checked))
	return r
}

// checked lists what was looked at, whether or not something is wrong with it.
func (o *observed) checked() []Checked {
	out := []Checked{{Object: o.serviceObject(), Detail: fmt.Sprintf("%d endpoints, name %s", len(o.endpoints), o.service.ServerName())}}
	for _, a := range o.apiServices {
		out = append(out, Checked{Object: apiServiceObject(a), Detail: fmt.Sprintf("%d CAs in its caBundle, Available %s", len(certs.LenientBundle(a.Spec.CABundle)), available(a))})
	}
	for i, e := range o.endpoints {
		c := Checked{Object: endpointObject(e), Detail: "ready"}
		if !e.Ready {
			c.Detail = "not ready"
		}
		for _, a := range o.apiServices {
			if leaf := o.served[a.Name][i].Leaf; leaf != nil {
				end := leaf.NotAfter.UTC()
				c.Detail, c.NotAfter = leaf.Subject.String(), &end
			}
		}
		out = append(out, c)
	}
	for _, s := range o.stored {
		end := s.chain[0].NotAfter.UTC()
		out = append(out, Checked{Object: s.object, Detail: s.chain[0].Subject.String(), NotAfter: &end})
	}
	for _, url := range o.kubeAPIServers() {
		out = append(out, Checked{Object: "kube-apiserver " + url, Detail: fmt.Sprintf("%d APIServices asked for", len(o.apiServices))})
	}
	out = append(out, Checked{Object: cluster.TrustObject, Detail: "whom API servers believe"})
	if o.proxy != nil {
		end := o.proxy.Certificate.NotAfter.UTC()
		out = append(out, Checked{Object: o.proxyObject(), Detail: fmt.Sprintf("%d endpoints probed", len(o.probes)), NotAfter: &end})
	}
	return out
}

func (o *observed) kubeAPIServers() []string {
	var out []string
	for _, a := range o.answers {
		if !slices.Contains(out, a.kubeAPIServer) {
			out = append(out, a.kubeAPIServer)
		}
	}
	return out
}

func available(a apiregistrationv1.APIService) apiregistrationv1.ConditionStatus {
	for _, c := range a.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return c.Status
		}
	}
	return apiregistrationv1.ConditionUnknown
}
