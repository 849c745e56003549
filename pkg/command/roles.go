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
		Short: "Print ClusterRoles for the users of this API, which Kubernetes adds to view, edit and admin",
		Long: `Print ClusterRoles for the users of this API, which Kubernetes adds to view, edit and admin.

Those who may view, edit or administer a namespace have them at once: view reads the kinds, edit
writes them, and admin has actions, logs and streams. Nobody may write a status. Kinds that are not
in a namespace take a ClusterRoleBinding to these roles.`,
		Example: cli.Named(api.Name, `  SERVER roles | kubectl apply -f -
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
	cmd.Flags().StringVar(&prefix, "prefix", api.Name, "The first part of the names of the roles.")
	return cmd
}
