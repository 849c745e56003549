// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

// proxyClient replaces the certificate with which kube-apiserver authenticates as the front
// proxy with a new one of the same CA.
func (p *procedure) proxyClient() {
	p.caDir, p.leafDirs = certs.FrontProxyCADir, []string{certs.FrontProxyClientDir}
	if p.opts.otherDirs != nil {
		p.leafDirs = p.opts.otherDirs
	}
	p.issue = p.issueProxyClient
	p.preflight = p.checkFrontProxy
	stage := p.stageStep(
		"issue a new client certificate with the same CA and the same name; observed when every endpoint of every " +
			"aggregated API accepts it")
	stage.observed = p.newProxyAccepted
	p.steps = []step{stage, p.switchProxyStep(p.newProxyAccepted, p.oldBundle, p.restoreOld), p.finishStep()}
}

// switchProxyStep writes the key pair for kube-apiserver, which watches the files and rereads
// them at least every minute. kube-apiserver does not expose which key pair it uses, but
// IdentityReview reports it if the API serves that.
func (p *procedure) switchProxyStep(accepted func(context.Context) error, bundle bundleOf,
	undo func(context.Context) error) step {
	return step{
		name: "switch", kind: Identity, hold: true, needs: accepted,
		about: "write the new certificate and key for each kube-apiserver; observed when the files contain them, every " +
			"aggregated API responds to each kube-apiserver and, " +
			"if the API serves IdentityReview, reports that kube-apiserver presents the new certificate. " +
			"Kube-apiserver reads changed files within a minute; without IdentityReview the hold is at least 90 s",
		do: func(context.Context) error {
			if err := p.checkUnchanged(); err != nil {
				return err
			}
			return p.writeNew(bundle)
		},
		observed:   p.nextProxyInUse,
		undo:       undo,
		undone:     p.liveProxiesInUse,
		undoReason: p.nextProxyRefused,
	}
}

func (p *procedure) nextProxyInUse(ctx context.Context) error {
	if err := p.nextProxyResponds(ctx); err != nil {
		if refused := p.nextProxyRefused(ctx); refused != nil {
			return &stopError{refused}
		}
		return err
	}
	if err := p.checkProxyCertificates(ctx, p.next); err != nil || p.makeCA == nil {
		return err
	}
	// A kube-apiserver that joined since the rotation began would keep a certificate of the old
	// CA.
	if err := p.countKubeAPIServers(ctx); err != nil {
		return &waitError{fmt.Errorf("%w; --abort reverses this rotation", err)}
	}
	return nil
}

// nextProxyRefused returns an error if an API does not accept a certificate of the new CA: an
// API that could not be probed before may use a different CA for the front proxy. After the
// switch step has finished, it returns nil.
func (p *procedure) nextProxyRefused(ctx context.Context) error {
	if i := slices.IndexFunc(p.steps, func(s step) bool { return s.kind == Identity }); p.makeCA == nil ||
		p.record(&p.steps[i]).FinishedAt != nil {
		return nil
	}
	services, err := p.aggregated(ctx, CheckByResponse)
	if err != nil {
		return nil
	}
	refused := func(s certs.Service) error {
		err := p.respondsEverywhere(ctx, s)
		if status, ok := errors.AsType[*cluster.StatusError](err); ok && status.Status == http.StatusUnauthorized {
			return err
		}
		return nil
	}
	for _, s := range services {
		// kube-apiserver itself may reject certgen's user, for example while it starts.
		if refused(s) != nil && p.respondsEverywhere(ctx, p.opts.Service) == nil {
			if err := refused(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// liveProxiesInUse does not wait for third-party APIs: if one does not respond with the original
// certificate, that certificate is not the cause.
func (p *procedure) liveProxiesInUse(ctx context.Context) error {
	if err := p.respondsEverywhere(ctx, p.opts.Service); err != nil {
		return err
	}
	var live []*certs.KeyPair
	for i := range p.leafDirs {
		live = append(live, p.currentLeaf(i))
	}
	return p.checkProxyCertificates(ctx, live...)
}

func (p *procedure) issueProxyClient(ca *certs.CA, old *x509.Certificate) (*certs.KeyPair, error) {
	// kubeadm's certificates are valid for a year, because kubeadm renews them when it upgrades
	// a cluster.
	lifetime := max(certs.LeafLifetime, min(old.NotAfter.Sub(old.NotBefore), certs.MaxLeafLifetime))
	return ca.IssueClient(certs.ClientOptions{
		User: old.Subject.CommonName, Groups: old.Subject.Organization, Lifetime: cmp.Or(p.opts.Lifetime, lifetime),
		KeyType: p.opts.KeyType,
	})
}

// checkFrontProxy returns an error if extension API servers would not accept a certificate with
// the current name, or if an API does not respond already.
func (p *procedure) checkFrontProxy(ctx context.Context) error {
	name := ""
	ca, err := certs.ReadCertificate(p.opts.store, p.caDir)
	if err != nil {
		return err
	}
	if err := p.checkKubeadms(ca); err != nil {
		return err
	}
	for _, dir := range p.leafDirs {
		leaf, err := certs.ReadPair(p.opts.store, dir)
		if err != nil {
			return err
		}
		if !signedBy(leaf.Certificate, ca) {
			return &certs.RefusedError{Path: p.opts.store.Path(dir, certs.CertFile),
				Reason: fmt.Sprintf("expected a certificate of the CA in %s, found one of %s",
					p.opts.store.Path(p.caDir, certs.CertFile), leaf.Certificate.Issuer)}
		}
		files, err := p.opts.store.Read(dir, certs.BundleFile)
		if err != nil {
			return err
		}
		if _, err := certs.ParseBundle(files[certs.BundleFile].Data); err != nil && files != nil {
			return &certs.RefusedError{Path: p.opts.store.Path(dir, certs.BundleFile), Reason: err.Error()}
		}
		// All directories get the same new certificate.
		if name = cmp.Or(name, leaf.Certificate.Subject.String()); leaf.Certificate.Subject.String() != name {
			return &certs.RefusedError{Path: p.opts.store.Path(dir, certs.CertFile), Reason: fmt.Sprintf(
				"expected the subject %s, as in %s, found %s; rotate kube-apiservers with different subjects one by "+
					"one",
				name, p.opts.store.Path(p.leafDirs[0]), leaf.Certificate.Subject)}
		}
		if p.opts.Observer == nil {
			continue
		}
		if err := p.allowedByConfigMap(ctx, leaf.Certificate); err != nil {
			return err
		}
	}
	if p.opts.Observer == nil {
		return nil
	}
	if err := p.countKubeAPIServers(ctx); err != nil {
		return err
	}
	if p.makeCA != nil {
		if err := p.opts.Observer.ChangeFrontProxyCAs(ctx, nil, nil, metav1.DryRunAll); err != nil {
			return err
		}
	}
	return p.proxyResponds(ctx)
}

// countKubeAPIServers returns an error if there are more kube-apiservers than were named or
// found. One that keeps its certificate is rejected after the old CA is distrusted.
func (p *procedure) countKubeAPIServers(ctx context.Context) error {
	urls, err := p.opts.Observer.KubeAPIServers(ctx)
	if err != nil {
		return err
	}
	live, err := p.opts.Observer.Identities(ctx)
	if err != nil {
		return err
	}
	if len(urls) < live {
		return fmt.Errorf("%d kube-apiservers have renewed their identity Lease in kube-system within %s, but the "+
			"only URLs are %q; "+
			"name the URL of each with --kube-apiserver, not that of a load balancer", live, cluster.IdentityAge, urls)
	}
	// If several kube-apiservers share one directory, each must be observed to use it. If the CA
	// does not change, a kube-apiserver that cannot be observed may keep its certificate.
	named := p.namedDirs()
	if named == nil && len(urls) > 1 {
		leaf, err := certs.ReadPair(p.opts.store, p.leafDirs[0])
		if err != nil {
			return err
		}
		untold, err := p.proxyCertificates(ctx, leaf)
		if err == nil && len(untold) > 0 && p.makeCA != nil {
			err = fmt.Errorf("cannot observe which certificate %q present, because the API does not serve "+
				"IdentityReview to this user", untold)
		}
		if err != nil {
			remedy := "name the directory of each kube-apiserver with --front-proxy-client, even if several share one"
			if p.makeCA == nil {
				remedy = "name the available directories with --front-proxy-client, for example that of this host only"
			}
			return fmt.Errorf("%w; %s", err, remedy)
		}
	}
	// Certificates of the same CA may be replaced one host at a time, and a host may disappear
	// during the rotation.
	if len(named) > len(urls) && p.record(&p.steps[0]) == nil || p.makeCA != nil && named != nil &&
		len(named) < len(urls) {
		return fmt.Errorf("there are %d kube-apiservers, %q, and %d directories, %q; name the directory of each "+
			"with --front-proxy-client", len(urls), urls, len(named), named)
	}
	return nil
}

// namedDirs returns the directories that the options name. If the CA does not change, naming the
// default directory also selects a host, and the other hosts keep their certificates.
func (p *procedure) namedDirs() []string {
	if p.makeCA != nil {
		return p.opts.otherDirs
	}
	return p.opts.given
}

// allowedByConfigMap checks a front-proxy certificate as extension API servers do.
func (p *procedure) allowedByConfigMap(ctx context.Context, cert *x509.Certificate) error {
	cm, err := p.opts.Observer.TrustConfigMap(ctx)
	if err != nil {
		return err
	}
	trust := frontproxy.Evaluate(cm)
	var errs []error
	for _, problem := range trust.Problems {
		// An empty list of names allows this name too.
		if problem.Weakness != frontproxy.AnyName {
			errs = append(errs, errors.New(problem.String()))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if !frontproxy.AllowsName(trust.AllowedNames, cert.Subject.CommonName) {
		return fmt.Errorf("%s: expected %s to allow %q, found %q", cluster.TrustObject, frontproxy.AllowedNamesKey,
			cert.Subject.CommonName, trust.AllowedNames)
	}
	if _, err := cert.Verify(x509.VerifyOptions{
		Roots: certs.Bundle(trust.CAs).Pool(), CurrentTime: p.opts.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return fmt.Errorf("%s: expected %s to verify the client certificate: %w", cluster.TrustObject,
			frontproxy.CAKey, err)
	}
	return nil
}

// nextProxyResponds returns nil if the files contain the new key pair and proxyResponds returns
// nil.
func (p *procedure) nextProxyResponds(ctx context.Context) error {
	for _, dir := range p.leafDirs {
		found, err := certs.ReadPair(p.opts.store, dir)
		if err != nil {
			return err
		}
		if !found.Certificate.Equal(p.next.Certificate) {
			return fmt.Errorf("%s: expected the new certificate, found sha256:%.16s; check for other writers",
				p.opts.store.Path(dir, certs.CertFile), certs.Fingerprint(found.Certificate))
		}
	}
	return p.proxyResponds(ctx)
}

func (p *procedure) newProxyAccepted(ctx context.Context) error {
	return p.probe(ctx, p.next, cluster.Accepted)
}

// proxyReload exceeds the minute within which kube-apiserver reads changed front-proxy files.
const proxyReload = 90 * time.Second

// checkProxyCertificates returns nil if all kube-apiservers present one of the certificates to
// the API of the Service. If no API reports the certificate, it emits a note once and extends
// the hold instead.
func (p *procedure) checkProxyCertificates(ctx context.Context, wanted ...*certs.KeyPair) error {
	untold, err := p.proxyCertificates(ctx, wanted...)
	if len(untold) > 0 {
		p.opts.Hold = max(p.opts.Hold, proxyReload)
		p.note(fmt.Sprintf("Service %s/%s does not serve IdentityReview to this user, so certgen cannot observe which "+
			"certificate a kube-apiserver presents; it holds for %s instead",
			p.opts.Service.Namespace, p.opts.Service.Name, p.opts.Hold))
	}
	return err
}

// proxyCertificates does the check for the kube-apiservers whose certificate an API reports; it
// returns the others.
func (p *procedure) proxyCertificates(ctx context.Context, wanted ...*certs.KeyPair) (untold []string, err error) {
	kubeAPIServers, err := p.opts.Observer.KubeAPIServers(ctx)
	if err != nil {
		return nil, err
	}
	apiServices, err := p.opts.Observer.APIServices(ctx, p.opts.Service)
	if err != nil {
		return nil, err
	}
	var other error
	missing := 0
	for _, k := range kubeAPIServers {
		told := false
		for _, a := range apiServices {
			shown, err := p.opts.Observer.FrontProxyCertificate(ctx, k, a)
			if errors.Is(err, cluster.ErrNoIdentityReview) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if told = true; !slices.ContainsFunc(wanted, func(pair *certs.KeyPair) bool {
				return certs.Fingerprint(pair.Certificate) == shown
			}) {
				missing++
				other = fmt.Errorf("%s still presents the front proxy's certificate sha256:%.16s, not sha256:%.16s; "+
					"check that it reads one of %q",
					k, shown, certs.Fingerprint(wanted[0].Certificate), p.paths())
			}
			break
		}
		if !told {
			untold = append(untold, k)
		}
	}
	// If fewer directories were named than there are kube-apiservers, the others keep their
	// certificates.
	if named := p.namedDirs(); named != nil && missing <= len(kubeAPIServers)-len(named) {
		return untold, nil
	}
	return untold, other
}

// paths returns the paths of the leaves' sets, or of a file in each.
func (p *procedure) paths(file ...string) []string {
	var out []string
	for _, dir := range p.leafDirs {
		out = append(out, p.opts.store.Path(append([]string{dir}, file...)...))
	}
	return out
}
