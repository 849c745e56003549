// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/extension-apiserver/internal/certs"
)

const (
	etcdNamespace = "etcd-system"
	etcdName      = "etcd"
	members       = 3
)

// etcdServing and etcdPeer name the Secrets, and the directories in a member, of its serving
// certificate and of the client certificate that it presents to other members.
const etcdServing, etcdPeer = "serving", "peer"

func etcdHost(i int) string {
	return fmt.Sprintf("%s-%d.%s.%s.svc", etcdName, i, etcdName, etcdNamespace)
}

// startEtcd starts a cluster of three members that use TLS among themselves and to clients, which
// need a certificate. It also creates the Secret with the server's client certificate. The
// addresses match the component external-etcd.
func startEtcd(c cluster) {
	c.Helper()
	removeEtcd(c) // left by a failed run
	ca, err := certs.NewCA(certs.CAOptions{Name: "etcd", Usage: x509.ExtKeyUsageServerAuth, MutualTLS: true})
	if err != nil {
		c.Fatal(err)
	}
	hosts := []string{"localhost"}
	for i := range members {
		hosts = append(hosts, etcdHost(i))
	}
	serving, err := ca.IssueServing(certs.ServingOptions{DNSNames: hosts})
	if err != nil {
		c.Fatal(err)
	}
	peer, err := ca.IssueClient(certs.ClientOptions{User: "etcd-peer"})
	if err != nil {
		c.Fatal(err)
	}
	client, err := ca.IssueClient(certs.ClientOptions{User: name})
	if err != nil {
		c.Fatal(err)
	}
	c.createNamespace(etcdNamespace, nil)
	c.createNamespace(namespace, map[string]string{"app.kubernetes.io/part-of": name})
	c.createPair(etcdNamespace, etcdServing, ca, serving)
	c.createPair(etcdNamespace, etcdPeer, ca, peer)
	c.createPair(namespace, name+"-etcd", ca, client)
	if _, err := c.core.CoreV1().Services(etcdNamespace).Create(c.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: etcdName},
		Spec: corev1.ServiceSpec{
			// Members must find each other before they are ready.
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
			Selector: map[string]string{"app": etcdName},
			Ports:    []corev1.ServicePort{{Name: "client", Port: 2379}, {Name: "peer", Port: 2380}},
		},
	}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if _, err := c.core.AppsV1().StatefulSets(etcdNamespace).Create(c.Context(), etcdStatefulSet(),
		metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	awaitEtcd(c)
}

func awaitEtcd(c cluster) {
	c.Helper()
	c.eventually("the members of etcd", func(ctx context.Context) error {
		set, err := c.core.AppsV1().StatefulSets(etcdNamespace).Get(ctx, etcdName, metav1.GetOptions{})
		if err == nil && set.Status.ReadyReplicas != members {
			err = fmt.Errorf("%d are ready, want %d", set.Status.ReadyReplicas, members)
		}
		return err
	})
}

// removeEtcd deletes the etcd cluster, and waits until its namespace is gone.
func removeEtcd(c cluster) {
	c.Helper()
	namespaces := c.core.CoreV1().Namespaces()
	if err := namespaces.Delete(c.Context(), etcdNamespace, metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		c.Fatal(err)
	}
	c.eventually("the namespace of etcd to go", func(ctx context.Context) error {
		_, err := namespaces.Get(ctx, etcdNamespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is still there"), err)
	})
}

func (c cluster) createNamespace(name string, labels map[string]string) {
	c.Helper()
	_, err := c.core.CoreV1().Namespaces().Create(c.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

func (c cluster) createPair(namespace, name string, ca *certs.CA, pair *certs.KeyPair) {
	c.Helper()
	_, err := c.core.CoreV1().Secrets(namespace).Create(c.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: pairData(c, ca.CertPEM, pair),
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

func pairData(c cluster, caPEM []byte, pair *certs.KeyPair) map[string][]byte {
	c.Helper()
	key, err := certs.EncodePrivateKey(pair.Key)
	if err != nil {
		c.Fatal(err)
	}
	return map[string][]byte{certs.CertFile: pair.CertPEM, certs.KeyFile: key, certs.BundleFile: caPEM}
}

func etcdStatefulSet() *appsv1.StatefulSet {
	replicas, labels := int32(members), map[string]string{"app": etcdName}
	host := "$(POD)." + etcdName + "." + etcdNamespace + ".svc"
	initial := ""
	for i := range members {
		initial += fmt.Sprintf(",%s-%d=https://%s:2380", etcdName, i, etcdHost(i))
	}
	nobody, group := int64(65532), int64(65532)
	// In memory: if three members sync each write to the one disk, beside the cluster's own etcd,
	// the test waits for minutes.
	data := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
	volumes := []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: data}}}
	mounts := []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	for _, secret := range []string{etcdServing, etcdPeer} {
		volumes = append(volumes, corev1.Volume{Name: secret,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}})
		mounts = append(mounts, corev1.VolumeMount{Name: secret, MountPath: "/certs/" + secret})
	}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: etcdName},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: etcdName, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					SecurityContext: &corev1.PodSecurityContext{RunAsUser: &nobody, FSGroup: &group},
					Volumes:         volumes,
					Containers: []corev1.Container{{
						Name: etcdName, Image: os.Getenv("ETCD_IMAGE"), Command: []string{"/etcd"},
						VolumeMounts: mounts,
						Env:          []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
						Args: []string{
							"--name=$(POD)", "--data-dir=/data/etcd", "--initial-cluster=" + initial[1:],
							"--listen-client-urls=https://0.0.0.0:2379", "--advertise-client-urls=https://" +
								host + ":2379",
							"--listen-peer-urls=https://0.0.0.0:2380", "--initial-advertise-peer-urls=https://" +
								host + ":2380",
							"--cert-file=/certs/serving/tls.crt", "--key-file=/certs/serving/tls.key",
							"--client-cert-auth", "--trusted-ca-file=/certs/serving/ca.crt",
							"--peer-cert-file=/certs/serving/tls.crt", "--peer-key-file=/certs/serving/tls.key",
							"--peer-client-cert-auth", "--peer-trusted-ca-file=/certs/serving/ca.crt",
							// Each certificate has one usage: etcd rejects the serving certificate
							// as a client certificate.
							"--peer-client-cert-file=/certs/peer/tls.crt", "--peer-client-key-file=/certs/peer/tls.key",
							"--enable-grpc-gateway=false", "--listen-metrics-urls=http://0.0.0.0:2381",
							"--log-level=warn",
						},
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 2,
							ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz",
								Port: intstr.FromInt32(2381)}}},
					}},
				},
			},
		},
	}
}
