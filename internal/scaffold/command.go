// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/semver"

	"example.com/extension-apiserver/internal/cli"
)

// NewCommand returns the command scaffold.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scaffold",
		Short: "Create a project that serves an API of your own, and change its kinds, versions and groups",
		Long: `Create a project that serves an API of your own, and change its kinds, versions and groups.

The commands write the files of a kind once; from then on the files are yours, and no command
overwrites them. Each command generates and compiles the code in a copy of the project, and changes
the project only if that succeeds, and if none of the files that it writes changed meanwhile. If you
run a command again, it changes nothing.`,
		Example: `  # Create a project
  scaffold new --dir=../backup --module=git.example.org/platform/backup --group=backup.example.org --kind=BackupPlan

  # Add a kind, in the directory of the project
  scaffold kind add BackupRun --subresources=status

  # Upgrade the kit to the newest version
  scaffold upgrade`,
	}
	cli.AddVersionFlag(cmd)
	cmd.AddCommand(newNewCommand(), newKindCommand(), newVersionCommand(), newGroupCommand(), newUpgradeCommand())
	return cmd
}

// kindFlags are the flags that describe a kind.
type kindFlags struct {
	scope, plural, source                         string
	subresources, shortNames, selectable, columns []string
	controller, roles                             bool
}

func (f *kindFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.scope, "scope", "Namespaced", "Scope of the objects: Namespaced or Cluster.")
	flags.StringVar(&f.plural, "plural", "",
		"Name of the resource. Default: the plural of the kind, in lower case.")
	flags.StringVar(&f.source, "source", "",
		"Serve objects of another system instead of objects in etcd: cached (a copy in memory, with watch) or live "+
			"(read for each request, without watch). The kind is read-only.")
	flags.StringSliceVar(&f.subresources, "subresources", nil,
		"Subresources: status, scale, log, NAME:action (a change on request, such as cancel:action), NAME:stream (a "+
			"WebSocket session).")
	flags.StringSliceVar(&f.shortNames, "short-names", nil, "Short names for kubectl.")
	flags.StringSliceVar(&f.selectable, "selectable", nil,
		"Field selectors, as PATH[:string|boolean|integer], such as spec.suspended:boolean. The fields are added to "+
			"the type.")
	flags.StringSliceVar(&f.columns, "columns", nil,
		"Columns of kubectl get, as PATH[:string|boolean|integer], such as spec.schedule. The fields are added to the "+
			"type.")
	flags.BoolVar(&f.controller, "controller", false,
		"Add a controller with its Deployment. Requires the subresource status.")
	flags.BoolVar(&f.roles, "roles", false,
		"Add ClusterRoles for users, which Kubernetes aggregates to view, edit and admin.")
}

// kind returns the kind that the flags describe, and all their errors.
func (f *kindFlags) kind(name string) (Kind, []error) {
	k := Kind{Kind: name, Plural: f.plural, ShortNames: f.shortNames, Namespaced: f.scope == "Namespaced",
		Controller: f.controller, Roles: f.roles, Source: f.source}
	var problems []error
	if f.scope != "Namespaced" && f.scope != "Cluster" {
		problems = append(problems, fmt.Errorf("--scope is %q, expected Namespaced or Cluster", f.scope))
	}
	if k.Plural == "" && name != "" {
		k.Plural = plural(name)
	}
	for _, sub := range f.subresources {
		switch sub {
		case "status":
			k.Status = true
		case "scale":
			k.Scale = true
		default:
			other, err := parseSubresource(sub)
			if err != nil {
				problems = append(problems, err)
			}
			k.Others = append(k.Others, other)
		}
	}
	parse := func(texts []string) (out []Field) {
		for _, text := range texts {
			field, err := parseField(text)
			if err != nil {
				problems = append(problems, err)
			}
			out = append(out, field)
		}
		return out
	}
	k.Selectable, k.Columns = parse(f.selectable), parse(f.columns)
	// A column of a selectable field need not repeat its type.
	for i, column := range k.Columns {
		for _, field := range k.Selectable {
			if field.Path == column.Path {
				k.Columns[i].Type = field.Type
			}
		}
	}
	return k, problems
}

func newNewCommand() *cobra.Command {
	var o newOptions
	var kind string
	var flags kindFlags
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Create a project with one kind",
		Example: `  # Create a project with the kind BackupPlan
  scaffold new --dir=../backup --module=git.example.org/platform/backup --group=backup.example.org --kind=BackupPlan \
    --subresources=status --short-names=bp --columns=spec.schedule`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, problems := flags.kind(kind)
			o.kind = k
			if o.kitVersion = ownVersion(); !semver.IsValid(o.kitVersion) || strings.Contains(o.kitVersion, "+") {
				o.kitVersion = ""
			}
			if problems = append(problems, o.validate()...); len(problems) > 0 {
				return cli.UsageError(problems...)
			}
			if o.kit == "" {
				dir, err := kitOfVersion(cmd.Context(), o.kitVersion)
				if err != nil {
					return err
				}
				o.kit = dir
			}
			var err error
			if o.kit, err = filepath.Abs(o.kit); err != nil {
				return err
			}
			return work{cmd.Context(), cmd.OutOrStdout()}.create(o)
		},
	}
	cmd.Flags().StringVar(&o.dir, "dir", "", "Directory of the project, which must be empty or not exist. Required.")
	cmd.Flags().StringVar(&o.module, "module", "", "Go module of the project. Required.")
	cmd.Flags().StringVar(&o.group, "group", "", "API group, such as backup.example.org. Required.")
	cmd.Flags().StringVar(&kind, "kind", "", "First kind, such as BackupPlan. Required.")
	cmd.Flags().StringVar(&o.version, "version", firstVersion, "First version, such as v1alpha1.")
	cmd.Flags().StringVar(&o.name, "name", "",
		"Name of the server, which ends with -apiserver. Default: the group's first label and -apiserver.")
	cmd.Flags().StringVar(&o.kit, "kit", "",
		"Directory of the kit. Default: this program's version from the module cache, or the module of the working "+
			"directory.")
	cmd.Flags().StringVar(&o.docsURL, "docs-url", "",
		"URL of a copy of the kit's documentation, to which alerts and the dashboard link. Default: "+docsURL+".")
	flags.add(cmd)
	cli.MarkRequired(cmd, "dir", "module", "group", "kind")
	return cmd
}

// onProject returns a RunE that locks the project of the working directory and runs do on it.
func onProject(do func(work, *project, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		p, err := openProject(dir)
		if err != nil {
			return err
		}
		unlock, err := p.lock()
		if err != nil {
			return err
		}
		defer unlock()
		if err := p.checkVersion(ownVersion()); err != nil {
			return err
		}
		err = do(work{cmd.Context(), cmd.OutOrStdout()}, p, args)
		if joined, ok := errors.AsType[interface {
			error
			Unwrap() []error
		}](err); ok {
			return cli.UsageError(joined.Unwrap()...)
		}
		return err
	}
}

func newKindCommand() *cobra.Command {
	cmd := cli.Group(&cobra.Command{Use: "kind", Short: "Add or delete a kind",
		Example: `  # Add a kind, and delete it
  scaffold kind add BackupPlan --short-names=bp
  scaffold kind delete BackupPlan`})
	var flags kindFlags
	var group, version, fromGroup string
	add := &cobra.Command{
		Use:   "add KIND",
		Short: "Add a kind: type, validation, storage, tests and client",
		Example: `  # Add a kind with a status, a scale, a field selector and columns
  scaffold kind add BackupPlan --scope=Namespaced --subresources=status,scale --short-names=bp \
    --selectable=spec.suspended:boolean --columns=spec.schedule,spec.suspended

  # Add a kind with an action, a log and a controller
  scaffold kind add BackupRun --subresources=status,cancel:action,log --controller

  # Add a cluster-scoped kind with an irregular plural
  scaffold kind add Person --scope=Cluster --plural=people

  # Add a kind whose objects are in another system
  scaffold kind add Server --scope=Cluster --source=cached --columns=spec.model`,
		Args: cobra.ExactArgs(1),
	}
	add.RunE = onProject(func(w work, p *project, args []string) error {
		k, problems := flags.kind(args[0])
		if len(problems) > 0 {
			return errors.Join(append(problems, k.validate()...)...)
		}
		return w.addKind(p, group, version, k)
	})
	add.Flags().StringVar(&group, "group", "", "API group. Default: the only group of the project.")
	add.Flags().StringVar(&version, "version", "", "Version of the kind. Default: the preferred version.")
	flags.add(add)
	del := &cobra.Command{
		Use:   "delete KIND",
		Short: "Delete a kind and its files",
		Long: `Delete a kind and its files: type, validation, storage, tests, client, example object and
controller. If other code uses the kind, the command lists all uses and changes nothing.

Objects that are stored stay in etcd, and a server without the kind cannot delete them. Before you
roll out that server, delete them in each cluster, with the kubectl command that this command prints.`,
		Example: `  # Delete the stored objects of the kind BackupPlan, and the kind
  kubectl delete backupplans.backup.example.org --all --all-namespaces
  scaffold kind delete BackupPlan`,
		Args: cobra.ExactArgs(1),
		RunE: onProject(func(w work, p *project, args []string) error {
			return w.deleteKind(p,
				fromGroup, args[0])
		}),
	}
	del.Flags().StringVar(&fromGroup, "group", "", "API group. Default: the only group of the project.")
	cmd.AddCommand(add, del)
	return cmd
}

func newVersionCommand() *cobra.Command {
	cmd := cli.Group(&cobra.Command{Use: "version",
		Short: "Print the version of scaffold, or add or delete a version of a group",
		Example: `  # Print the version of scaffold
  scaffold version

  # Add the version v2, and delete v1
  scaffold version add v2
  scaffold version delete v1`})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(cmd.OutOrStdout(), cmd.Root().Version)
		return err
	}
	var group, fromGroup string
	var hub bool
	add := &cobra.Command{
		Use:   "add VERSION",
		Short: "Add a version as a copy of the hub",
		Example: `  # Add the version v2
  scaffold version add v2

  # Add it, and make it the hub
  scaffold version add v2 --hub`,
		Args: cobra.ExactArgs(1),
		RunE: onProject(func(w work, p *project, args []string) error {
			return w.addVersion(p, group, args[0], hub)
		}),
	}
	add.Flags().StringVar(&group, "group", "", "API group. Default: the only group of the project.")
	add.Flags().BoolVar(&hub, "hub", false,
		"Make it the hub: functions of the registry.Kind receive its type, and other versions are converted to it. "+
			"Stored objects do not change.")
	del := &cobra.Command{
		Use:   "delete VERSION",
		Short: "Delete a version that is not stored",
		Example: `  # Delete the version v1
  scaffold version delete v1`,
		Args: cobra.ExactArgs(1),
		RunE: onProject(func(w work, p *project, args []string) error {
			return w.deleteVersion(p,
				fromGroup, args[0])
		}),
	}
	del.Flags().StringVar(&fromGroup, "group", "", "API group. Default: the only group of the project.")
	cmd.AddCommand(add, del)
	return cmd
}

func newGroupCommand() *cobra.Command {
	cmd := cli.Group(&cobra.Command{Use: "group", Short: "Add a group, or rename one",
		Example: `  # Add a group with the kind Bucket
  scaffold group add storage.example.org --kind=Bucket`})
	var flags kindFlags
	var kind string
	add := &cobra.Command{
		Use:   "add GROUP",
		Short: "Add a group with its first kind",
		Example: `  # Add a group with the cluster-scoped kind Bucket
  scaffold group add storage.example.org --kind=Bucket --scope=Cluster`,
		Args: cobra.ExactArgs(1),
	}
	add.RunE = onProject(func(w work, p *project, args []string) error {
		k, problems := flags.kind(kind)
		if len(problems) > 0 {
			return errors.Join(append(problems, k.validate()...)...)
		}
		return w.addGroup(p, args[0], k)
	})
	add.Flags().StringVar(&kind, "kind", "", "First kind of the group. Required.")
	flags.add(add)
	cli.MarkRequired(add, "kind")
	rename := &cobra.Command{
		Use:   "rename GROUP NEW",
		Short: "Rename a group that has no stored objects",
		Long: `Rename a group in all files of the project, except those in kit/. Go packages and clients keep
their names.

For users, the renamed group is another API. The server does not find objects that are stored under
the old name, and APIServices, roles and manifests elsewhere still have it. The page
docs/build/versions-and-conversion.md of the kit has the steps for a cluster.`,
		Example: `  # Rename the group backup.example.org
  scaffold group rename backup.example.org backup.platform.example.org`,
		Args: cobra.ExactArgs(2),
		RunE: onProject(func(w work, p *project, args []string) error { return w.renameGroup(p, args[0], args[1]) }),
	}
	cmd.AddCommand(add, rename)
	return cmd
}

func newUpgradeCommand() *cobra.Command {
	filesOnly := false
	cmd := &cobra.Command{
		Use:   "upgrade [VERSION]",
		Short: "Upgrade the kit (default: to the newest version)",
		Long: `Upgrade the kit: its module, its generators, and its files in kit/. The command keeps files in kit/
that you edited and lists them. If go.mod refers to a directory by replace, the files come from
there.`,
		Example: `  # Upgrade to the newest version
  scaffold upgrade

  # Upgrade to another version
  scaffold upgrade VERSION`,
		Args: cobra.MaximumNArgs(1),
		RunE: onProject(func(w work, p *project, args []string) error {
			if filesOnly {
				return w.takeFiles(p)
			}
			return w.upgrade(p, strings.Join(args, ""))
		}),
	}
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "Run the second half of an upgrade, with the new version.")
	_ = cmd.Flags().MarkHidden("files-only") // the flag is there
	return cmd
}
