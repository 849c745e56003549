// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/pkg/apiserver"
)

func newRolesCommand(api apiserver.API) *cobra.Command {
	prefix := ""
	cmd := &cobra.Command{
		Use:   "roles",
		Short: "Print ClusterRoles for the users of this API",
		Long: `Print ClusterRoles for the users of this API.

Kubernetes aggregates them to the ClusterRoles view, edit and admin. Users with these roles in a
namespace have the permissions at once:

  view   reads the objects, their status and their scale
  edit   also writes the objects and their scale
  admin  also uses all other subresources, such as actions, logs and streams

No role can write a status. Cluster-scoped kinds need a ClusterRoleBinding to the printed roles.`,
		Example: cli.Named(api.Name, `  # Grant the API to the users of the cluster
  SERVER roles | kubectl apply -f -

  # Write the manifest of a project
  SERVER roles --prefix=apiserver >manifests/roles/roles.yaml`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			roles, err := api.Roles(prefix)
			if err != nil {
				return err
			}
			for _, role := range roles {
				out, err := yaml.Marshal(role)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "---\n%s", out)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", api.Name, "Prefix of the names of the ClusterRoles.")
	return cmd
}
