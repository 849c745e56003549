// SPDX-License-Identifier: Apache-2.0

package certs_test

import (
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"example.com/extension-apiserver/internal/certs"
)

// This example issues the certificates of a control plane on one machine, with one CA for
// servers and one for users.
func Example() {
	dir, err := os.MkdirTemp("", "pki")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	servers, err := certs.NewCA(certs.CAOptions{Name: "servers-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		log.Fatal(err)
	}
	users, err := certs.NewCA(certs.CAOptions{Name: "users-ca", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		log.Fatal(err)
	}
	apiserver, err := servers.IssueServing(certs.ServingOptions{
		DNSNames: []string{"kubernetes.default.svc", "localhost"}, IPs: []string{"127.0.0.1", "10.0.0.1"},
	})
	if err != nil {
		log.Fatal(err)
	}
	admin, err := users.IssueClient(certs.ClientOptions{User: "admin", Groups: []string{"system:masters"},
		AllowSystemMasters: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := apiserver.Write(filepath.Join(dir, "kube-apiserver"), certs.Bundle{servers.Certificate}); err != nil {
		log.Fatal(err)
	}
	if err := admin.Write(filepath.Join(dir, "admin"), certs.Bundle{users.Certificate}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(apiserver.Certificate.DNSNames, apiserver.Certificate.IPAddresses)
	fmt.Println(admin.Certificate.Subject)
	// Output:
	// [kubernetes.default.svc localhost] [127.0.0.1 10.0.0.1]
	// CN=admin,O=system:masters
}
