// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
)

// secrets is a certs.Store in two Secrets. The serving key pair is in the one that servers
// mount. The CA and the state of a rotation are in the one that only certgen reads. The content
// stays in memory after it was read: the Lease prevents other writers, and an update that
// conflicts with a change fails.
type secrets struct {
	certs.Memory
	ctx    context.Context // of the run that opened them
	client typedcorev1.SecretInterface
	opts   Options
	ca     *corev1.Secret // as last read or written
}

// OpenSecrets reads the Secrets that the options name.
func OpenSecrets(ctx context.Context, o Options) (certs.Store, error) { return openSecrets(ctx, o) }

func openSecrets(ctx context.Context, o Options) (*secrets, error) {
	client := o.Observer.Secrets(o.Service.Namespace)
	ca, err := client.Get(ctx, o.CASecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// Creating it here would hide the loss of a CA on which all trust depends.
		return nil, fmt.Errorf(
			"expected Secret %s/%s for the serving CA, found none; restore it from a backup, or for a new CA create "+
				"an empty Secret: "+
				"kubectl create secret generic %s --namespace %s", o.Service.Namespace, o.CASecret, o.CASecret,
			o.Service.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s/%s: %w", o.Service.Namespace, o.CASecret, err)
	}
	serving, err := client.Get(ctx, o.Secret, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get Secret %s/%s: %w", o.Service.Namespace, o.Secret, err)
	}
	s := &secrets{ctx: ctx, client: client, opts: o, ca: ca}
	s.Name = s.path
	s.Sets = map[string]certs.Files{}
	for key, data := range ca.Data {
		if set, file, ok := setOf(key); ok && len(data) > 0 {
			s.put(set, file, data)
		}
	}
	if err == nil {
		for _, file := range pairFiles {
			if data := serving.Data[file]; len(data) > 0 {
				s.put(certs.ServingDir, file, data)
			}
		}
	}
	return s, nil
}

// hasCAKey reports whether the Secret contains the CA's key. It is false if a remote signer has
// the key.
func (s *secrets) hasCAKey() bool { return s.Sets[certs.ServingCADir][certs.KeyFile].Data != nil }

func (s *secrets) put(set, file string, data []byte) {
	if s.Sets[set] == nil {
		s.Sets[set] = certs.Files{}
	}
	s.Sets[set][file] = certs.File{Data: data, Mode: 0o600}
}

var pairFiles = []string{certs.CertFile, certs.KeyFile, certs.BundleFile}

// keyOf returns the key in the CA's Secret for a file: tls.crt for the CA's,
// rotation.new.serving.tls.crt for one of a rotation.
func keyOf(set, file string) string {
	if set == certs.ServingCADir {
		return file
	}
	return strings.ReplaceAll(set, "/", ".") + "." + file
}

func setOf(key string) (set, file string, ok bool) {
	for _, file := range append([]string{StateFile}, pairFiles...) {
		if key == file && file != StateFile {
			return certs.ServingCADir, file, true
		}
		if set, ok := strings.CutSuffix(key, "."+file); ok &&
			(set == servingState || file != StateFile && strings.HasPrefix(set, servingState+".")) {
			return strings.ReplaceAll(set, ".", "/"), file, true
		}
	}
	return "", "", false
}

func (s *secrets) path(elem ...string) string {
	secret := func(name string) string { return "Secret " + s.opts.Service.Namespace + "/" + name }
	switch {
	case len(elem) == 0:
		return secret(s.opts.Secret) + " and " + secret(s.opts.CASecret)
	case elem[0] == certs.ServingDir && len(elem) == 1:
		return secret(s.opts.Secret)
	case elem[0] == certs.ServingDir:
		return "key " + elem[1] + " of " + secret(s.opts.Secret)
	case len(elem) == 1 && elem[0] == servingState:
		return "the keys " + keyOf(servingState, "*") + " of " + secret(s.opts.CASecret)
	case len(elem) == 1:
		return secret(s.opts.CASecret)
	}
	return "key " + keyOf(elem[0], elem[1]) + " of " + secret(s.opts.CASecret)
}

// writable checks with a dry run whether the serving Secret can be changed, because another
// field manager may own it.
func (s *secrets) writable(ctx context.Context) error {
	return s.apply(ctx, apply.WithNewlines(dataOf(s.Sets[certs.ServingDir])), true)
}

func dataOf(files certs.Files) map[string][]byte {
	data := map[string][]byte{}
	for name, file := range files {
		data[name] = file.Data
	}
	return data
}

func (s *secrets) apply(ctx context.Context, data map[string][]byte, dryRun bool) error {
	return retry.OnError(storeBackoff, isTransient, func() error {
		return apply.Secret(ctx, s.client, s.opts.Service.Namespace, s.opts.Secret, data, dryRun, s.opts.ForceConflicts)
	})
}

// Write stores a set in its Secret.
func (s *secrets) Write(set string, files certs.Files) error {
	if set != certs.ServingDir {
		return s.update(func(m *certs.Memory) error { return m.Write(set, files) })
	}
	if err := s.apply(s.ctx, dataOf(files), false); err != nil {
		return err
	}
	return s.Memory.Write(set, files)
}

// Move renames a set. It deletes a replaced CA instead of retiring it, because its key in the
// cluster would be a risk without any benefit.
func (s *secrets) Move(from, to string) error {
	return s.update(func(m *certs.Memory) error {
		if certs.IsRetired(to) {
			return m.Remove(from)
		}
		return m.Move(from, to)
	})
}

// Remove removes the set and all sets below it.
func (s *secrets) Remove(set string) error {
	return s.update(func(m *certs.Memory) error { return m.Remove(set) })
}

// update changes the CA's Secret. It fails if the Secret has changed since it was read.
func (s *secrets) update(change func(*certs.Memory) error) error {
	sets := maps.Clone(s.Sets)
	if err := change(&certs.Memory{Sets: sets}); err != nil {
		return err
	}
	next := s.ca.DeepCopy()
	maps.DeleteFunc(next.Data, func(key string, _ []byte) bool { _, _, ours := setOf(key); return ours })
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	for set, files := range sets {
		for file, f := range files {
			if set != certs.ServingDir {
				next.Data[keyOf(set, file)] = f.Data
			}
		}
	}
	if !maps.EqualFunc(next.Data, s.ca.Data, bytes.Equal) {
		if err := s.store(next); err != nil {
			return fmt.Errorf("update Secret %s/%s: %w", next.Namespace, next.Name, err)
		}
	}
	s.Sets = sets
	return nil
}

// store updates the CA's Secret and retries transient errors. It resolves a conflict if the
// stored data is the new data, because the response to an earlier attempt was lost, or the data
// last read, for example with another label. Any other conflict is an error.
func (s *secrets) store(next *corev1.Secret) error {
	return retry.OnError(storeBackoff, isTransient, func() error {
		stored, err := s.client.Update(s.ctx, next, metav1.UpdateOptions{FieldManager: cluster.FieldManager})
		if apierrors.IsConflict(err) {
			found, getErr := s.client.Get(s.ctx, next.Name, metav1.GetOptions{})
			switch {
			case getErr != nil:
				err = getErr
			case maps.EqualFunc(next.Data, found.Data, bytes.Equal):
				stored, err = found, nil
			case maps.EqualFunc(s.ca.Data, found.Data, bytes.Equal):
				next.ObjectMeta = found.ObjectMeta
			default:
				err = errors.New("another client changed the Secret; run the command again")
			}
		}
		if err == nil {
			s.ca = stored
		}
		return err
	})
}

// storeBackoff takes half a minute in total; kube-apiserver restarts in less.
var storeBackoff = utilwait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 8}
