// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// proxyShown returns nil when each kube-apiserver shows one of the certificates to the API of the Service. Where no API tells, it says so
// once, and the hold stands for it.
func (p *procedure) proxyShown(ctx context.Context, wanted ...*certs.KeyPair) error {
	if p.opts.Observer == nil {
		return nil
	}
	var prints []string
	for _, pair := range wanted {
		prints = append(prints, certs.Fingerprint(pair.Certificate))
	}
	kubeAPIServers, err := p.opts.Observer.KubeAPIServers(ctx)
	if err != nil {
		return err
	}
	apiServices, err := p.opts.Observer.APIServices(ctx, p.opts.Service)
	if err != nil {
		return err
	}
	var other error
	missing := 0
	for _, k := range kubeAPIServers {
		told := false
		for _, a := range apiServices {
			shown, err := p.opts.Observer.FrontProxyShown(ctx, k, a)
			if errors.Is(err, cluster.ErrNoReview) {
				continue
			}
			if err != nil {
				return err
			}
			if told = true; !slices.Contains(prints, shown) {
				missing++
				other = fmt.Errorf("%s still shows the front proxy's certificate sha256:%.16s, not sha256:%.16s; does it read one of %q?", k, shown, prints[0], p.paths())
			}
			break
		}
		if !told && !p.proxyUnseen {
			p.proxyUnseen = true
			p.note(fmt.Sprintf("Service %s/%s serves no IdentityReview to this user, so which certificate a kube-apiserver shows is not seen; the hold stands for it",
				p.opts.Service.Namespace, p.opts.Service.Name))
		}
	}
	// Where fewer directories were named than there are kube-apiservers, the others keep theirs.
	if dirs := p.opts.otherDirs(); dirs != nil && missing <= len(kubeAPIServers)-len(dirs) {
		return nil
	}
	return other
}

func (p *procedure) paths() []string {
	var out []string
	for _, dir := range p.leafDirs {
		out = append(out, p.opts.Store.Path(dir))
	}
	return out
}
