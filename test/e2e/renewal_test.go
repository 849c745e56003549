// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/internal/certs"
	kubecluster "example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
)

// renewNow runs the Job of the renewal CronJob now, and waits until it completes.
func renewNow(c cluster, limit time.Duration) {
	c.Helper()
	jobs := c.core.BatchV1().Jobs(namespace)
	cronJob, err := c.core.BatchV1().CronJobs(namespace).Get(c.Context(), name+"-certgen-renew", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	job, err := jobs.Create(c.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{GenerateName: "renew-now-"},
		Spec: cronJob.Spec.JobTemplate.Spec}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	c.within(limit, "the renewal Job", func(ctx context.Context) error {
		job, err := jobs.Get(ctx, job.Name, metav1.GetOptions{})
		if err == nil && job.Status.Succeeded != 1 {
			err = fmt.Errorf("%d succeeded, %d failed", job.Status.Succeeded, job.Status.Failed)
		}
		return err
	})
	background := metav1.DeletePropagationBackground
	if err := jobs.Delete(c.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		c.Error(err)
	}
}

// renewal stores a key pair that is due for renewal, runs the CronJob now, and waits until every
// server serves the renewed certificate.
func renewal(c cluster) {
	c.Helper()
	storeDuePair(c)
	due := servingCertificate(c)
	renewNow(c, patience)
	renewed := servingCertificate(c)
	if renewed == due {
		c.Fatal("the CronJob left a certificate that is due, want another")
	}
	awaitServed(c, renewed)
}

// awaitServed waits until every server serves the certificate. kubelet updates the files in a pod
// within a minute or two.
func awaitServed(c cluster, serial string) {
	c.Helper()
	began := time.Now()
	for _, pod := range serverPods(c) {
		c.eventually("pod "+pod.Name+" to serve the certificate in the Secret", func(ctx context.Context) error {
			served, err := c.served(ctx, pod.Name)
			if err == nil && served != serial {
				err = errors.New("it serves another")
			}
			return err
		})
		c.Logf("pod %s serves it after %.0f s", pod.Name, time.Since(began).Seconds())
	}
}

// caSecret is the Secret of the CA. agedCA is the prefix of the common name of a CA that is due
// for replacement.
const caSecret, agedCA = name + "-serving-ca", "aged"

var service = certs.Service{Name: name, Namespace: namespace}

// ageCA gives the deployment a CA that expires in a year, and replaces the pods, which then serve
// a certificate of it at once.
func ageCA(c cluster) {
	c.Helper()
	r, err := kubecluster.New(c.config)
	if err != nil {
		c.Fatal(err)
	}
	secrets := c.core.CoreV1().Secrets(namespace)
	stored, err := secrets.Get(c.Context(), caSecret, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	before, err := certs.ParseBundle(stored.Data[certs.CertFile])
	if err != nil {
		c.Fatal(err)
	}
	writer := apply.Client{Cluster: r}
	made := time.Now().AddDate(1, 0, 0).Add(-certs.CALifetime)
	aged, err := certs.NewCA(certs.CAOptions{Name: agedCA, Usage: x509.ExtKeyUsageServerAuth,
		PermittedDNS: service.DNSNames(), Now: func() time.Time { return made }})
	if err != nil {
		c.Fatal(err)
	}
	if err := writer.ChangeCABundle(c.Context(), service, certs.Bundle{aged.Certificate}, nil); err != nil {
		c.Fatal(err)
	}
	stored.Data = map[string][]byte{certs.CertFile: aged.CertPEM, certs.KeyFile: aged.KeyPEM}
	if _, err := secrets.Update(c.Context(), stored, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	storePair(c, certs.LeafLifetime)
	rollout(c)
	awaitServed(c, servingCertificate(c))
	if err := writer.ChangeCABundle(c.Context(), service, nil, before); err != nil {
		c.Fatal(err)
	}
}

// replaceCA runs the CronJob now, with its defaults. It replaces the CA, which is due, while
// requests continue.
func replaceCA(c cluster) {
	c.Helper()
	began := time.Now()
	renewNow(c, 20*time.Minute)
	took := time.Since(began)
	c.Logf("the CronJob replaced the CA in %s", took.Round(time.Second))
	if took > 10*time.Minute {
		c.Errorf("it took %s, want less than 10 minutes", took)
	}
	stored, err := c.core.CoreV1().Secrets(namespace).Get(c.Context(), caSecret, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	fresh, err := certs.ParseBundle(stored.Data[certs.CertFile])
	if err != nil || strings.HasPrefix(fresh[0].Subject.CommonName, agedCA+"@") {
		c.Fatalf("the CA in the Secret is the one that was due (%v)", err)
	}
	r, err := kubecluster.New(c.config)
	if err != nil {
		c.Fatal(err)
	}
	all, err := r.APIServices(c.Context(), service)
	if err != nil {
		c.Fatal(err)
	}
	for _, a := range all {
		if bundle, err := certs.ParseBundle(a.Spec.CABundle); err != nil || len(bundle) != 1 ||
			!bundle.Contains(fresh[0]) {
			c.Errorf("APIService %s trusts %d CAs (%v), want the new one alone", a.Name, len(bundle), err)
		}
	}
	awaitServed(c, servingCertificate(c))
}

// storeDuePair replaces the serving key pair with one that has less than a third of its lifetime
// left: it expires in 20 minutes, and has been valid for an hour.
func storeDuePair(c cluster) { c.Helper(); storePair(c, 20*time.Minute) }

// storePair replaces the serving key pair with one that the CA in the Secret signed.
func storePair(c cluster, lifetime time.Duration) {
	c.Helper()
	secrets := c.core.CoreV1().Secrets(namespace)
	ca, err := secrets.Get(c.Context(), caSecret, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	issuer, err := certs.ParseCA(ca.Data[certs.CertFile], ca.Data[certs.KeyFile], nil)
	if err != nil {
		c.Fatal(err)
	}
	pair, err := issuer.IssueServing(certs.ServingOptions{DNSNames: service.DNSNames(), Lifetime: lifetime})
	if err != nil {
		c.Fatal(err)
	}
	patch, err := json.Marshal(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name + "-serving"}, Type: corev1.SecretTypeTLS,
		Data: pairData(c, ca.Data[certs.CertFile], pair),
	})
	if err != nil {
		c.Fatal(err)
	}
	if _, err := secrets.Patch(c.Context(), name+"-serving", types.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: kubecluster.FieldManager}); err != nil {
		c.Fatal(err)
	}
}

func servingCertificate(c cluster) string {
	c.Helper()
	secret, err := c.core.CoreV1().Secrets(namespace).Get(c.Context(), name+"-serving", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	bundle, err := certs.ParseBundle(secret.Data[certs.CertFile])
	if err != nil {
		c.Fatal(err)
	}
	return bundle[0].SerialNumber.String()
}

// served returns the serial number of the certificate that a pod serves, through a tunnel through
// kube-apiserver and kubelet.
func (c cluster) served(ctx context.Context, pod string) (serial string, err error) {
	address, stop, err := c.forward(ctx, namespace, pod, 6443)
	if err != nil {
		return "", err
	}
	defer stop()
	bundle, err := c.servingCAs(ctx)
	if err != nil {
		return "", err
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: bundle.Pool(), ServerName: name + "." + namespace + ".svc",
		MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// servingCAs returns the CAs in the Secret of the serving key pair.
func (c cluster) servingCAs(ctx context.Context) (certs.Bundle, error) {
	secret, err := c.core.CoreV1().Secrets(namespace).Get(ctx, name+"-serving", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return certs.ParseBundle(secret.Data[certs.BundleFile])
}
