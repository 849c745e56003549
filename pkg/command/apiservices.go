// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/registration"
	"example.com/extension-apiserver/pkg/apiserver"
)

func newAPIServicesCommand(api apiserver.API) *cobra.Command {
	backend := registration.Backend{}
	var caFile string
	var kustomize bool
	cmd := &cobra.Command{
		Use:   "apiservices",
		Short: "Print the APIServices that register this API with kube-apiserver",
		Long: `Print the APIServices that register this API with kube-apiserver, one for each served version.

Apply them after the server is ready. While an APIService has no working server, discovery of the
whole cluster is incomplete and namespaces cannot be deleted.

With --kustomize, print the manifest api/apiservices.yaml of a project instead. It contains the
APIServices without Service and CA, which the other manifests of the project set, and the
permissions that the API needs in the cluster.`,
		Example: cli.Named(api.Name, `  # Register the API
  SERVER apiservices --service SERVER --namespace SERVER --ca-file pki/serving-ca/tls.crt |
    kubectl apply -f -

  # Write the manifest of a project
  SERVER apiservices --kustomize >manifests/api/apiservices.yaml`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kustomize {
				if cmd.Flags().NFlag() > 1 {
					return cli.UsageErrorf("--kustomize excludes all other flags: the manifests set Service and CA")
				}
				out, err := registration.Manifest(api.GroupVersions(), api.AllPermissions(), api.NamespacePermissions)
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(out)
				return err
			}
			if err := completeBackend(&backend, caFile); err != nil {
				return err
			}
			for _, service := range registration.APIServices(api.GroupVersions(), backend) {
				out, err := yaml.Marshal(service)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "---\n%s", out)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&backend.Name, "service", "",
		"Name of the Service of the server. Required without --kustomize.")
	cmd.Flags().StringVarP(&backend.Namespace, "namespace", "n", "",
		"Namespace of the Service. Required without --kustomize.")
	cmd.Flags().Int32Var(&backend.Port, "port", 443, "Port of the Service.")
	cmd.Flags().StringVar(&caFile, "ca-file", "",
		"PEM file with the CA of the server's certificate, which becomes the caBundle. Required without --kustomize.")
	cmd.Flags().BoolVar(&kustomize, "kustomize", false,
		"Print the manifest api/apiservices.yaml of a project. Excludes all other flags.")
	return cmd
}

// completeBackend reads the CA and returns all errors in the flags. It rejects a caBundle that
// the aggregator cannot parse: requests would fail while the APIService stays Available.
func completeBackend(backend *registration.Backend, caFile string) error {
	var problems []error
	for flag, value := range map[string]string{"namespace": backend.Namespace, "service": backend.Name} {
		if value == "" {
			problems = append(problems, fmt.Errorf("--%s is required", flag))
		} else if wrong := validation.IsDNS1123Label(value); len(wrong) > 0 {
			problems = append(problems, fmt.Errorf("--%s is %q: %s", flag, value, wrong[0]))
		}
	}
	for _, wrong := range validation.IsValidPortNum(int(backend.Port)) {
		problems = append(problems, fmt.Errorf("--port is %d: %s", backend.Port, wrong))
	}
	data, err := os.ReadFile(caFile)
	if err == nil {
		_, err = certutil.ParseCertsPEM(data)
	}
	switch {
	case caFile == "":
		problems = append(problems, errors.New("--ca-file is required"))
	case err != nil:
		problems = append(problems, fmt.Errorf("read --ca-file %s: %w", caFile, err))
	}
	if len(problems) > 0 {
		slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return cli.UsageError(problems...)
	}
	backend.CABundle = data
	return nil
}
