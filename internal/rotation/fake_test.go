// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

var service = certs.Service{Name: "widgets", Namespace: "demo"}

// killed is the panic value that simulates kill -9: none of the following code runs.
type killed struct{}

// fakeCluster is a cluster whose servers and kube-apiservers reread their files each time.
// Requests succeed only if kube-aggregator and the API servers would accept the certificates.
type fakeCluster struct {
	t         *testing.T
	dir       string
	secrets   apply.Client // the serving key pair and its CA are in Secrets, not in dir
	now       time.Time
	hold      time.Duration     // five checks of two seconds
	caBundle  certs.Bundle      // of v1
	second    certs.Bundle      // of v2
	other     *x509.Certificate // an additional CA that the second one trusts
	proxies   []string          // the directories of the kube-apiservers
	kubeadm   bool              // they read kubeadm's files next to those
	version   int
	trusted   certs.Bundle    // of the trust ConfigMap
	names     string          // allowed names, as JSON
	users     string          // the CAs of users, PEM
	leases    []certs.Service // that are held
	wasLeased bool
	// left is the number of calls until the process is killed; negative means unlimited.
	left int
	// worlds records all persistent state at each call; nil means that it is not recorded.
	worlds []string
	// Faults.
	outage       bool                // requests of users may fail
	stuckLeaf    *x509.Certificate   // served by an endpoint regardless of its file
	unseen       bool                // a kube-apiserver does not see changes
	restarts     bool                // a kube-apiserver has removed itself from the list
	probe        cluster.ProbeResult // instead of the correct one
	foreignCA    *x509.Certificate   // in the file of a kube-apiserver, in addition to that of dir
	failResponse func() error
	identities   int                 // of kube-apiservers
	forbidden    error               // error of a dry run that changes trust
	noReview     bool                // no API reports the certificate of a kube-apiserver
	skew         time.Duration       // of the clock
	others       []certs.Service     // of third-party aggregated APIs, without a caBundle; "broken" does not respond
	down         string              // an APIService that does not respond
	accepts      []*x509.Certificate // of the front proxy, accepted by the API "metrics" only; empty: the correct ones
	// farEndpoints is the error for the endpoints of the API "far". nil means that it has no
	// endpoints, unless hasFar is true.
	farEndpoints error
	hasFar       bool
	farProbe     cluster.ProbeResult // their result for a certificate that is not in use; empty: the correct one
	// cutOff is the error of the endpoint that is not ready, instead of a refused connection.
	cutOff error
	// restarted are CAs that a kube-apiserver publishes until the time in until, because it has
	// not reread its file.
	restarted    certs.Bundle
	until        time.Time
	lostResponse int // number of the write whose response is lost, starting at 1
	// slow contains the kube-apiservers that read changed files a minute later, by directory.
	slow     map[string]*loaded
	register func(*apiregistrationv1.APIService) // applies changes of other clients to the APIService
}

var begin = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// initialized returns a directory that certs.Init created. Each test gets a copy, because
// generating keys and syncing files is slower.
var initialized = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rotation-")
	if err != nil {
		return "", err
	}
	_, err = certs.Init(context.Background(), certs.InitOptions{Dir: dir, Service: service,
		Now: func() time.Time { return begin }})
	return dir, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := initialized(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func newFake(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeCluster{t: t, dir: t.TempDir(), now: begin, hold: 10 * time.Second, left: -1,
		farEndpoints: errors.New("endpointslices is forbidden"), names: `["front-proxy-client"]`}
	dir, err := initialized()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(f.dir, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	f.caBundle = certs.Bundle{f.cert(certs.ServingCADir)}
	f.second = f.caBundle
	f.proxies = []string{filepath.Join(f.dir, certs.FrontProxyClientDir)}
	// Keys from the same second would not show which key pair is newer.
	f.now = f.now.Add(time.Hour)
	return f
}

func (f *fakeCluster) cert(name string) *x509.Certificate {
	cert, err := certs.ReadCertificate(f.storeOf(name), name)
	if err != nil {
		f.t.Fatal(err)
	}
	return cert
}

// newFakeInSecrets returns a cluster with the serving key pair and its CA in Secrets.
func newFakeInSecrets(t *testing.T) *fakeCluster {
	t.Helper()
	f := newFake(t)
	ca := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: "ca"},
		Data: map[string][]byte{}}
	f.secrets = apply.Client{Cluster: clustertest.New(nil, ca)}
	f.secrets.Now = func() time.Time { return f.now }
	for _, set := range []string{certs.ServingCADir, certs.ServingDir} {
		files, err := certs.Dir(f.dir).Read(set)
		if err == nil {
			err = f.store().Write(set, files)
		}
		if err == nil {
			err = certs.Dir(f.dir).Remove(set)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// store opens the store again, as a new process does.
func (f *fakeCluster) store() certs.Store {
	if f.secrets.Cluster == nil {
		return directory{certs.Dir(f.dir)}
	}
	s, err := openSecrets(f.t.Context(), Options{Service: service, Observer: f.secrets, Now: f.secrets.Now, Secret: "s",
		CASecret: "ca"})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// storeOf returns the store of a key pair.
func (f *fakeCluster) storeOf(name string) certs.Store {
	if name == certs.ServingDir || name == certs.ServingCADir {
		return f.store()
	}
	return directory{certs.Dir(f.dir)}
}

// newFakeOfKubeadm returns a cluster whose front-proxy files have kubeadm's names.
func newFakeOfKubeadm(t *testing.T) *fakeCluster {
	t.Helper()
	f := newFake(t)
	f.kubeadm = true
	for _, name := range []string{certs.FrontProxyCADir, certs.FrontProxyClientDir} {
		pair, err := certs.ReadKeyPair(filepath.Join(f.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(f.dir, name+".crt"), append([]byte("kubeadm\n"), pair.CertPEM...), 0o600)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(f.dir, name+".key"), ofOpenSSL(t, pair.Key), 0o600)
		}
		if err == nil {
			err = os.RemoveAll(filepath.Join(f.dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// ofOpenSSL encodes a key in a format other than certgen's.
func ofOpenSSL(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// rotationCase is a rotation and the location of its key pairs.
type rotationCase struct {
	name, rotation string
	fake           func(*testing.T) *fakeCluster
}

func rotationCases() []rotationCase {
	out := []rotationCase{
		{"serving in Secrets", Serving, newFakeInSecrets}, {"serving-ca in Secrets", ServingCA, newFakeInSecrets},
		{"proxy-client of kubeadm", ProxyClient, newFakeOfKubeadm},
		{"front-proxy-ca of kubeadm", FrontProxyCA, newFakeOfKubeadm},
	}
	for _, r := range Rotations() {
		out = append(out, rotationCase{r, r, newFake})
	}
	return out
}

// step counts a point at which the process can be killed.
func (f *fakeCluster) step() {
	if f.worlds != nil {
		f.worlds = append(f.worlds, f.world())
	}
	if f.left == 0 {
		panic(killed{})
	}
	f.left--
}

// world returns all state that outlives the process: files and the cluster.
func (f *fakeCluster) world() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%x %x %x", f.caBundle.PEM(), f.second.PEM(), f.trusted.PEM())
	if f.secrets.Cluster != nil {
		list, err := f.secrets.Core.CoreV1().Secrets(service.Namespace).List(f.t.Context(), metav1.ListOptions{})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, secret := range list.Items {
			fmt.Fprintln(&out, secret.Data)
		}
	}
	if err := filepath.WalkDir(f.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target, _ := os.Readlink(path)
		info, err := entry.Info()
		if err == nil && !entry.IsDir() {
			fmt.Fprintln(&out, path, target, info.ModTime())
		}
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	return out.String()
}

// cuts runs a rotation to its end and returns the calls before which persistent state had
// changed. A kill at any other call is equivalent to a kill at the previous one.
func cuts(f *fakeCluster, rotation string) []int {
	t := f.t
	f.worlds = []string{}
	if _, err := Run(t.Context(), f.options(rotation)); err != nil {
		t.Fatal(err)
	}
	var out []int
	for i := range f.worlds {
		if i == 0 || f.worlds[i] != f.worlds[i-1] {
			out = append(out, i)
		}
	}
	return out
}

func (f *fakeCluster) options(rotation string) Options {
	opts := Options{
		Rotation: rotation, Dir: f.dir, Service: service, Observer: f, Hold: f.hold, Timeout: time.Minute,
		Settle: 10 * time.Second,
		Now:    func() time.Time { f.step(); return f.now },
		Wait: func(ctx context.Context, d time.Duration) error {
			f.step()
			f.now = f.now.Add(d)
			return ctx.Err()
		},
		Progress:   func(Event) { f.step(); f.mustRespond() },
		afterWrite: func() { f.step(); f.mustHold(service) }, FrontProxyClientDirs: f.given(),
	}
	if f.secrets.Cluster != nil {
		opts.Dir, opts.Secret, opts.CASecret = "", "s", "ca"
	}
	return opts
}

// mustRespond reports a test error if requests of users would fail.
func (f *fakeCluster) mustRespond() {
	f.t.Helper()
	if err := f.responds(); err != nil && !f.outage {
		f.t.Errorf("users get no responses: %v", err)
	}
}

func (f *fakeCluster) served() *x509.Certificate {
	if f.stuckLeaf != nil {
		return f.stuckLeaf
	}
	return f.cert(certs.ServingDir)
}

func (f *fakeCluster) verify(cert *x509.Certificate, roots certs.Bundle, usage x509.ExtKeyUsage) error {
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots.Pool(), CurrentTime: f.now,
		KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// responds returns the result of a request through kube-apiserver, which depends first on the
// serving certificate, then on that of the front proxy.
func (f *fakeCluster) responds() error {
	for _, bundle := range []certs.Bundle{f.caBundle, f.second} {
		if err := f.verify(f.served(), bundle, x509.ExtKeyUsageServerAuth); err != nil {
			return fmt.Errorf("503: %w", err)
		}
	}
	trusted := f.publish()
	for _, dir := range f.proxies {
		cert, err := f.inUse(dir)
		if err != nil {
			return err
		}
		if err := f.verify(cert, trusted, x509.ExtKeyUsageClientAuth); err != nil {
			return fmt.Errorf("401 to %s: %w", dir, err)
		}
	}
	return nil
}

// publish acts as kube-apiserver's controller: it adds CAs and never removes any.
func (f *fakeCluster) publish() certs.Bundle {
	var bundle certs.Bundle
	for _, dir := range f.proxies {
		bundle = append(bundle, f.bundleIn(dir)...)
	}
	if f.now.Before(f.until) {
		bundle = append(bundle, f.restarted...)
	}
	if f.foreignCA != nil {
		bundle = append(bundle, f.foreignCA)
	}
	f.trusted = f.trusted.Merge(f.now, bundle...)
	return f.trusted
}

// runUntilKilled simulates one process. It returns the result of do, or false if the process was
// killed.
func (f *fakeCluster) runUntilKilled(do func(context.Context, Options) (*State, error),
	rotation string) (err error, ended bool) {
	ended = f.survives(func() { _, err = do(f.t.Context(), f.options(rotation)) })
	return err, ended
}

// survives calls do and returns false if the process was killed.
func (f *fakeCluster) survives(do func()) (alive bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	do()
	return true
}

// state returns the record of the rotation that began last.
func (f *fakeCluster) state() (last *State) {
	for _, rotation := range []string{Serving, ProxyClient} {
		s, err := ReadState(f.store(), rotation)
		if err != nil {
			f.t.Fatal(err)
		}
		if last == nil || s != nil && s.StartedAt.After(last.StartedAt) {
			last = s
		}
	}
	return last
}

func (f *fakeCluster) stateText() string {
	data, err := json.MarshalIndent(f.state(), "", " ")
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

// sameCAs compares the CAs as sets.
func sameCAs(a, b certs.Bundle) bool { return len(a.Without(b...)) == 0 && len(b.Without(a...)) == 0 }
