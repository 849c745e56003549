// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"path"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// defaultServerUser is whom the manifests here name; the certificate in the kubeconfig may say otherwise.
const defaultServerUser = "system:konnectivity-server"

// serverKubeconfig is what a server's kubeconfig says, with paths as the container has them. All is empty where it is not among the files,
// which is not wrong: a kubeconfig holds a key, or names one.
type serverKubeconfig struct {
	cluster clientcmdapi.Cluster
	user    clientcmdapi.AuthInfo
}

func (s *set) readKubeconfig(p *program) serverKubeconfig {
	name := p.options.text("kubeconfig")
	config, err := clientcmd.LoadFromFile(s.file(name))
	if err != nil {
		return serverKubeconfig{}
	}
	var k serverKubeconfig
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return k
	}
	if c := config.Clusters[current.Cluster]; c != nil {
		k.cluster = *c
	}
	if u := config.AuthInfos[current.AuthInfo]; u != nil {
		k.user = *u
	}
	for _, file := range k.files() {
		if *file != "" && !path.IsAbs(*file) {
			*file = path.Join(path.Dir(name), *file)
		}
	}
	return k
}

func (k *serverKubeconfig) files() []*string {
	return []*string{&k.cluster.CertificateAuthority, &k.user.ClientCertificate, &k.user.ClientKey, &k.user.TokenFile}
}

// userName is the common name of the client certificate.
func (k serverKubeconfig) userName(s *set) string {
	bundle, err := certs.ParseBundle(k.user.ClientCertificateData)
	if err != nil {
		bundle = s.bundle(k.user.ClientCertificate)
	}
	if len(bundle) == 0 {
		return defaultServerUser
	}
	return bundle[0].Subject.CommonName
}

// kubeconfigFindings: the server sees the files that its kubeconfig names.
func (s *set) kubeconfigFindings() []verify.Finding {
	var out []verify.Finding
	for _, p := range s.servers {
		k := s.readKubeconfig(p)
		for _, file := range k.files() {
			if *file == "" {
				continue
			}
			if _, mount := p.volumeAt(*file); mount == nil {
				out = append(out, verify.Finding{Object: p.String(), Evidence: fmt.Sprintf("the kubeconfig names %s, which no volume of the server has", *file),
					Fix: "put it beside the kubeconfig before certgen kubeconfig makes that"})
			}
		}
	}
	return out
}
