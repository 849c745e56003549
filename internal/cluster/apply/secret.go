// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster"
)

// planSecret compares the serving Secret with the directory. It returns the Secret that is there, or nil.
func (c Client) planSecret(ctx context.Context, o Options, src *Source) (Item, *corev1.Secret, error) {
	item := Item{
		Kind: "Secret", Namespace: o.Service.Namespace, Name: o.Secret,
		Action: ApplyChange, Reason: "its certificate is another", SHA256: []string{certs.Fingerprint(src.Chain[0])},
	}
	data, err := PairData(src.Store, certs.ServingDir, c.Time())
	if err != nil {
		return item, nil, err
	}
	client, writes := c.Secrets(o.Service.Namespace), []map[string][]byte{data}
	item.write = func(ctx context.Context, dryRun bool) error {
		for _, data := range writes {
			if err := Secret(ctx, client, o.Service.Namespace, o.Secret, data, dryRun, o.ForceConflicts); err != nil {
				return err
			}
		}
		return nil
	}
	stored, err := client.Get(ctx, o.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		item.Action, item.Reason = ApplyCreate, "it does not exist"
		return item, nil, nil
	}
	if err != nil {
		return item, nil, fmt.Errorf("get Secret %s/%s: %w", o.Service.Namespace, o.Secret, err)
	}
	// Others may keep keys of their own in it.
	same := !slices.ContainsFunc(slices.Collect(maps.Keys(data)), func(key string) bool { return !bytes.Equal(data[key], stored.Data[key]) })
	immutable := stored.Immutable != nil && *stored.Immutable
	var paths []fieldpath.Path
	for key := range data {
		paths = append(paths, fieldpath.MakePathOrDie("data", key))
	}
	ours, others := cluster.Owners(stored.ManagedFields, paths...)
	switch {
	case stored.Type != corev1.SecretTypeTLS:
		return item, stored, fmt.Errorf("plan Secret %s/%s: expected the type %s, found %s, which nobody can change; choose another name",
			o.Service.Namespace, o.Secret, corev1.SecretTypeTLS, stored.Type)
	case !same && immutable:
		return item, stored, fmt.Errorf("plan Secret %s/%s: expected one that can be changed, found it immutable; choose another name, and mount that",
			o.Service.Namespace, o.Secret)
	case same && len(others) > 0 && o.ForceConflicts && !immutable:
		item.Reason = "its data is owned by " + strings.Join(others, ", ")
		writes = []map[string][]byte{WithNewlines(data), data}
	case same && ours:
		item.Action, item.Reason = ApplyUnchanged, "it holds this pair"
	case same:
		item.Reason = cluster.FieldManager + " does not own its data yet"
	case slices.Equal(stored.Data[corev1.TLSCertKey], data[corev1.TLSCertKey]):
		item.Reason = "its key or its CAs are others"
	}
	return item, stored, nil
}

// WithNewlines means the same: only what differs is taken from its owners by force, as for a caBundle.
func WithNewlines(data map[string][]byte) map[string][]byte {
	touched := map[string][]byte{}
	for key, value := range data {
		touched[key] = append(bytes.Clone(value), '\n')
	}
	return touched
}

// Secret applies a Secret of type kubernetes.io/tls with those data.
func Secret(ctx context.Context, client typedcorev1.SecretInterface, namespace, name string, data map[string][]byte, dryRun, force bool) error {
	config := corev1ac.Secret(name, namespace).WithType(corev1.SecretTypeTLS).WithData(data)
	if _, err := client.Apply(ctx, config, serverSide(dryRun, force)); err != nil {
		return fmt.Errorf("apply Secret %s/%s: %w", namespace, name, explainConflict(err))
	}
	return nil
}

// PairData is what a Secret holds of a pair: certificates and key that match, written as every reader takes them, and the CAs in ca.crt, if
// there are any, that have not expired.
func PairData(store certs.Store, pair string, now time.Time) (map[string][]byte, error) {
	files, err := store.Read(pair)
	if err != nil {
		return nil, err
	}
	chain, err := certs.ParseBundle(files[certs.CertFile].Data)
	if err != nil {
		return nil, &certs.RefusedError{Path: store.Path(pair, certs.CertFile), Reason: err.Error()}
	}
	if chain[0].IsCA {
		return nil, &certs.RefusedError{Path: store.Path(pair, certs.KeyFile), Reason: "expected the key of a leaf, found that of a CA, with which " +
			"anybody who reads the Secret can make certificates; name a leaf's directory"}
	}
	key, err := certs.ParsePrivateKey(files[certs.KeyFile].Data)
	if err != nil {
		return nil, &certs.RefusedError{Path: store.Path(pair, certs.KeyFile), Reason: err.Error()}
	}
	keyPEM, err := certs.EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	// The files were read one after the other; certgen init may have switched them in between.
	if _, err := tls.X509KeyPair(chain.PEM(), keyPEM); err != nil {
		return nil, fmt.Errorf("match key and certificate: %w; run this again if certgen init was at work", err)
	}
	data := map[string][]byte{certs.CertFile: chain.PEM(), certs.KeyFile: keyPEM}
	if file, ok := files[certs.BundleFile]; ok {
		bundle, err := certs.ParseCAs(file.Data, store.Path(pair, certs.BundleFile), now)
		if err != nil {
			return nil, err
		}
		data[certs.BundleFile] = bundle.PEM()
	}
	return data, nil
}

// refuseFaulty refuses a pair's directory in which certgen verify finds an error. Any common name will do for a front proxy: what is allowed is
// not known here.
func refuseFaulty(dir string, now time.Time) error {
	report, err := verify.Paths([]string{filepath.Join(dir, certs.CertFile)}, verify.Options{AllowedNames: []string{}, Now: now})
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range report.Findings {
		if f.Severity == verify.Error {
			errs = append(errs, &certs.RefusedError{Path: f.Object, Reason: fmt.Sprintf("%s %s; %s", f.ID, f.Evidence, f.Fix)})
		}
	}
	return errors.Join(errs...)
}
