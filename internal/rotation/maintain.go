// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"

	"example.com/extension-apiserver/internal/certs"
)

// MaintainOptions say where a cluster keeps its own serving certificate.
type MaintainOptions struct {
	Service certs.Service
	Secret  string // name of the Secret for the serving pair, in the namespace of the Service; made if missing
	// CASecret is the name of the Secret for the serving CA with its key, in the same namespace. It must exist; one
	// without data gets a new CA. Whoever can read it can make certificates for the Service.
	CASecret string
	// APIServices are waited for, up to Wait, until each has the Service as its backend; none and 0 wait for nothing.
	APIServices []string
	Wait        time.Duration
	KeyType     certs.KeyType // of new keys; empty means that of certgen init
}

// MaintainReport says what Maintain did.
type MaintainReport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // MaintainReport
	// Pairs are the CA and the serving pair; what is new in them is in the Secrets.
	Pairs []MaintainedPair `json:"pairs"`
	Apply *ApplyReport     `json:"apply"`
}

// MaintainedPair is what was done about the CA or the serving pair.
type MaintainedPair struct {
	Secret   string       `json:"secret"`
	Action   certs.Action `json:"action"`
	Reason   string       `json:"reason"`
	NotAfter time.Time    `json:"notAfter"`
	Notes    []string     `json:"notes,omitempty"`
}

// Validate returns all that is wrong with the options, as *certs.InvalidError joined by errors.Join.
func (o MaintainOptions) Validate() error {
	errs := []error{o.Service.Validate()}
	for field, name := range map[string]string{"secret": o.Secret, "ca-secret": o.CASecret} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			errs = append(errs, &certs.InvalidError{Field: field, Value: name, Reason: "expected the Secret's name: " + problems[0]})
		}
	}
	if o.Secret == o.CASecret && o.Secret != "" {
		errs = append(errs, &certs.InvalidError{Field: "ca-secret", Value: o.CASecret,
			Reason: "expected another name than that of --secret: servers mount that one, and must not have the CA's key"})
	}
	if (o.Wait > 0) != (len(o.APIServices) > 0) || o.Wait < 0 {
		errs = append(errs, &certs.InvalidError{Field: "wait", Value: o.Wait.String(),
			Reason: fmt.Sprintf("expected a time to wait together with names of APIServices, found %d names; give both or neither", len(o.APIServices))})
	}
	return errors.Join(errs...)
}

// Maintain keeps the serving pair and its CA in Secrets of the cluster: it makes what is missing, renews the pair when a
// third of its life is left, and makes the CA the caBundle of every APIService of the Service. What is right is left
// alone, so it is for a job at the start and for one that runs each day. Several may run at once: the one that comes
// second to write the CA's Secret begins again with that CA.
//
// It decides as certs.Init and PlanApply do, and refuses what they refuse: a CA that is trusted and whose key is gone needs
// a person.
func (c *Cluster) Maintain(ctx context.Context, o MaintainOptions) (report *MaintainReport, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := checkClock(ctx, c); err != nil {
		return nil, err
	}
	again := func() error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error { report, err = c.maintainOnce(ctx, o); return err })
	}
	if err := again(); err != nil || o.Wait == 0 {
		return report, err
	}
	if err := c.waitForAPIServices(ctx, o); err != nil {
		return report, err
	}
	return report, again()
}

// maintainOnce works in a directory that is gone afterwards: a Secret is changed only by what certs.Init made of it. The
// CA is stored before anything trusts it, and everything trusts it before it is served.
func (c *Cluster) maintainOnce(ctx context.Context, o MaintainOptions) (_ *MaintainReport, err error) {
	dir, err := os.MkdirTemp("", "certgen-")
	if err != nil {
		return nil, fmt.Errorf("make directory for the keys: %w; mount a volume in memory at /tmp, or set TMPDIR", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ca, err := c.loadCASecret(ctx, o, filepath.Join(dir, certs.ServingCADir))
	if err != nil {
		return nil, err
	}
	if err := c.loadServingSecret(ctx, o, filepath.Join(dir, certs.ServingDir)); err != nil {
		return nil, err
	}
	made, err := certs.Init(ctx, certs.InitOptions{Dir: dir, Service: o.Service, With: []string{}, KeyType: o.KeyType, Now: c.now})
	if err != nil {
		return nil, inSecrets(err, dir, o)
	}
	report := &MaintainReport{APIVersion: certs.APIVersion, Kind: "MaintainReport"}
	for _, item := range made.Items {
		pair := MaintainedPair{Secret: o.Secret, Action: item.Action, Reason: item.Reason, NotAfter: item.Certificate.NotAfter, Notes: item.Notes}
		if item.Name == certs.ServingCADir {
			pair.Secret = o.CASecret
		}
		report.Pairs = append(report.Pairs, pair)
	}
	if report.Apply, err = c.PlanApply(ctx, ApplyOptions{Service: o.Service, From: dir, Secret: o.Secret}); err != nil {
		return nil, inSecrets(err, dir, o)
	}
	if err := c.storeCASecret(ctx, ca, filepath.Join(dir, certs.ServingCADir)); err != nil {
		return nil, err
	}
	return report, c.Apply(ctx, report.Apply)
}

// inSecrets says of what was refused in the directory in which Secret it is, and how a new CA is allowed there.
func inSecrets(err error, dir string, o MaintainOptions) error {
	key := "key %s of Secret " + o.Service.Namespace + "/%s"
	var names []string
	for pair, secret := range map[string]string{certs.ServingCADir: o.CASecret, certs.ServingDir: o.Secret} {
		for _, file := range []string{certs.CertFile, certs.KeyFile, certs.BundleFile} {
			names = append(names, filepath.Join(dir, pair, file), fmt.Sprintf(key, file, secret))
		}
	}
	var errs []error
	for _, err := range certs.Flatten(err) {
		text := err.Error()
		if refused := new(certs.RefusedError); errors.As(err, &refused) && refused.OnlyNewCA {
			here := &certs.RefusedError{Path: refused.Path, Reason: refused.Reason}
			text = fmt.Sprintf("%v; put that right (from a backup?), or for a new CA, which everything that trusts the old one must then be told of, empty the Secret: "+
				"kubectl patch secret %s --namespace %s --type merge --patch '{\"data\":null}'", here, o.CASecret, o.Service.Namespace)
		}
		errs = append(errs, errors.New(strings.NewReplacer(names...).Replace(text)))
	}
	return errors.Join(errs...)
}

// waitForAPIServices returns nil when each name is an APIService whose backend is the Service.
func (c *Cluster) waitForAPIServices(ctx context.Context, o MaintainOptions) error {
	ctx, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	for {
		ours, err := c.APIServices(ctx, o.Service)
		missing := slices.DeleteFunc(slices.Clone(o.APIServices), func(name string) bool {
			for _, a := range ours {
				if a.Name == name {
					return true
				}
			}
			return false
		})
		if err == nil && len(missing) == 0 {
			return nil
		}
		if wait(ctx, defaultPoll) != nil {
			return errors.Join(fmt.Errorf("expected APIServices with the Service %s/%s as their backend within %s, missing are %v; "+
				"the Secrets are as they should be: register the API and run this again", o.Service.Namespace, o.Service.Name, o.Wait, missing), err)
		}
	}
}

// loadServingSecret writes the pair in the Secret, if there is one, as files.
func (c *Cluster) loadServingSecret(ctx context.Context, o MaintainOptions, dir string) error {
	secret, err := c.Core.CoreV1().Secrets(o.Service.Namespace).Get(ctx, o.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Secret %s/%s: %w", o.Service.Namespace, o.Secret, err)
	}
	return writeSecretFiles(dir, secret, certs.CertFile, certs.KeyFile, certs.BundleFile)
}

// loadCASecret writes the CA in the Secret, if it has one, as files.
func (c *Cluster) loadCASecret(ctx context.Context, o MaintainOptions, dir string) (*corev1.Secret, error) {
	secret, err := c.Core.CoreV1().Secrets(o.Service.Namespace).Get(ctx, o.CASecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// To make it here would hide that a CA was lost, on which all trust rests; and two at once could make one each.
		return nil, fmt.Errorf("expected Secret %s/%s for the serving CA, found none; put it back from a backup, or for a new CA make an empty one: "+
			"kubectl create secret generic %s --namespace %s", o.Service.Namespace, o.CASecret, o.CASecret, o.Service.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s/%s: %w", o.Service.Namespace, o.CASecret, err)
	}
	return secret, writeSecretFiles(dir, secret, certs.CertFile, certs.KeyFile)
}

func writeSecretFiles(dir string, secret *corev1.Secret, names ...string) error {
	files := map[string]certs.File{}
	for _, name := range names {
		if data := secret.Data[name]; len(data) > 0 {
			files[name] = certs.File{Data: data, Mode: 0o600}
		}
	}
	if len(files) == 0 {
		return nil
	}
	if err := certs.WriteFiles(dir, files); err != nil {
		return fmt.Errorf("write what is in Secret %s: %w", secret.Name, err)
	}
	return nil
}

// storeCASecret stores the CA, unless it is there. The Secret must still be what was read: a conflict means that another
// Maintain stored its CA meanwhile.
func (c *Cluster) storeCASecret(ctx context.Context, secret *corev1.Secret, dir string) error {
	files, err := readFiles(dir)
	if err != nil {
		return err
	}
	next, changed := secret.DeepCopy(), false
	for _, name := range []string{certs.CertFile, certs.KeyFile} {
		file, ok := files[name]
		if !ok || string(file.Data) == string(next.Data[name]) {
			continue
		}
		if next.Data == nil {
			next.Data = map[string][]byte{}
		}
		next.Data[name], changed = file.Data, true
	}
	if !changed {
		return nil
	}
	if _, err := c.Core.CoreV1().Secrets(secret.Namespace).Update(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager}); err != nil {
		return fmt.Errorf("store the serving CA in Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}
