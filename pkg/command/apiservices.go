// SPDX-License-Identifier: Apache-2.0

package command

import (
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
		Short: "Print the APIServices that register this API, one for each version it serves",
		Long: `Print the APIServices that register this API, one for each version it serves.

Apply them last, when the server is ready: while an APIService has no working server behind it,
discovery of the whole cluster is incomplete and namespaces cannot be deleted.

With --kustomize, print the file api/apiservices.yaml of a project's manifests instead: the
APIServices without names and CA, which the kit's manifests fill in, and what they need to know of
the API.`,
		Example: cli.Named(api.Name, `  SERVER apiservices --service SERVER --namespace SERVER --ca-file pki/serving-ca/tls.crt |
    kubectl apply -f -
  SERVER apiservices --kustomize >manifests/api/apiservices.yaml`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kustomize {
				if cmd.Flags().NFlag() > 1 {
					return cli.UsageErrorf(
						"--kustomize is given, expected no other flag: the manifests have Service and CA")
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
	cmd.Flags().StringVar(&backend.Name, "service", "", "Name of the Service in front of the server.")
	cmd.Flags().StringVar(&backend.Namespace, "namespace", "", "Namespace of that Service.")
	cmd.Flags().Int32Var(&backend.Port, "port", 443, "Port of that Service.")
	cmd.Flags().StringVar(&caFile, "ca-file", "",
		"The CA that signed the server's certificate, in PEM; it becomes the caBundle.")
	cmd.Flags().BoolVar(&kustomize, "kustomize", false,
		"Print api/apiservices.yaml of a project's manifests; no other flag applies.")
	return cmd
}

// completeBackend reads the CA and returns all errors in the flags. It rejects a caBundle that
// the aggregator cannot parse: requests would fail while the APIService stays Available.
func completeBackend(backend *registration.Backend, caFile string) error {
	var problems []error
	for flag, value := range map[string]string{"namespace": backend.Namespace, "service": backend.Name} {
		if wrong := validation.IsDNS1123Label(value); len(wrong) > 0 {
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
	if err != nil {
		problems = append(problems, fmt.Errorf("--ca-file is %q, expected a file with PEM certificates: %w", caFile,
			err))
	}
	if len(problems) > 0 {
		slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return cli.UsageError(problems...)
	}
	backend.CABundle = data
	return nil
}
