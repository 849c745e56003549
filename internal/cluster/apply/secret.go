// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster"
)

// planSecret compares the serving Secret with the directory. It also returns the existing
// Secret, or nil.
func (c Client) planSecret(ctx context.Context, o Options, src *Source) (planned, *corev1.Secret, error) {
	name := o.Service.Namespace + "/" + o.Secret
	item := planned{Item: certs.Item{Path: "Secret " + name, Action: certs.Replaced,
		Reason: "contains another certificate"}}
	data, err := src.pairData()
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
		item.Action, item.Reason = certs.Made, "not found"
		return item, nil, nil
	}
	if err != nil {
		return item, nil, fmt.Errorf("get Secret %s: %w", name, err)
	}
	// Other clients may store additional keys in it. A rotation keeps the order of their CAs.
	same := slices.Equal(stored.Data[certs.CertFile], data[certs.CertFile]) &&
		slices.Equal(stored.Data[certs.KeyFile], data[certs.KeyFile]) &&
		sameSet(stored.Data[certs.BundleFile], src.Bundle)
	immutable := stored.Immutable != nil && *stored.Immutable
	var paths []fieldpath.Path
	for key := range data {
		paths = append(paths, fieldpath.MakePathOrDie("data", key))
	}
	ours, others := cluster.Owners(stored.ManagedFields, paths...)
	switch {
	case stored.Type != corev1.SecretTypeTLS:
		return item, stored, fmt.Errorf(
			"plan Secret %s: expected the type %s, found %s, which cannot be changed; choose another name",
			name, corev1.SecretTypeTLS, stored.Type)
	case !same && immutable:
		return item, stored, fmt.Errorf(
			"plan Secret %s: the Secret is immutable; choose another name, and mount that Secret",
			name)
	case same && len(others) > 0 && o.ForceConflicts && !immutable:
		item.Reason = "data owned by " + strings.Join(others, ", ")
		writes = []map[string][]byte{WithNewlines(data), data}
	case same && ours:
		item.Action, item.Reason = certs.Kept, "up to date"
		item.write = nil
	case same:
		item.Reason = cluster.FieldManager + " does not own the data yet"
	case slices.Equal(stored.Data[corev1.TLSCertKey], data[corev1.TLSCertKey]):
		item.Reason = "contains another key or other CAs"
	}
	return item, stored, nil
}

// WithNewlines returns data with the same meaning but different bytes, because a forced apply
// takes ownership only of fields that differ, as for a caBundle.
func WithNewlines(data map[string][]byte) map[string][]byte {
	touched := map[string][]byte{}
	for key, value := range data {
		touched[key] = append(bytes.Clone(value), '\n')
	}
	return touched
}

// Secret applies a Secret of type kubernetes.io/tls with the given data.
func Secret(ctx context.Context, client typedcorev1.SecretInterface, namespace, name string, data map[string][]byte,
	dryRun, force bool) error {
	config := corev1ac.Secret(name, namespace).WithType(corev1.SecretTypeTLS).WithData(data)
	if _, err := client.Apply(ctx, config, serverSide(dryRun, force)); err != nil {
		return fmt.Errorf("apply Secret %s/%s: %w", namespace, name, explainConflict(err))
	}
	return nil
}

// pairData returns the data of a Secret for the key pair: matching certificates and key in the
// format that every reader accepts, and the CAs.
func (s *Source) pairData() (map[string][]byte, error) {
	key, err := certs.ParsePrivateKey(s.key)
	if err != nil {
		return nil, &certs.RefusedError{Path: s.file(certs.KeyFile), Reason: err.Error()}
	}
	keyPEM, err := certs.EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	// The files were read one after the other; certgen init may have switched them in between.
	if _, err := tls.X509KeyPair(s.Chain.PEM(), keyPEM); err != nil {
		return nil, fmt.Errorf("match key and certificate: %w; run the command again if certgen init was running", err)
	}
	return map[string][]byte{certs.CertFile: s.Chain.PEM(), certs.KeyFile: keyPEM, certs.BundleFile: s.Bundle.PEM()},
		nil
}

// refuseFaulty returns the errors that certgen verify finds in the directory of a key pair. It
// accepts any common name of a front proxy, because the allowed names are in the cluster.
func refuseFaulty(dir string, now time.Time) error {
	report, err := verify.Paths([]string{filepath.Join(dir, certs.CertFile)},
		verify.Options{AllowedNames: []string{}, Now: now})
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range report.Findings {
		if f.Severity == catalogue.Error {
			errs = append(errs, &certs.RefusedError{Path: f.Object,
				Reason: fmt.Sprintf("%s %s; %s", f.ID, f.Evidence, f.Fix)})
		}
	}
	return errors.Join(errs...)
}
