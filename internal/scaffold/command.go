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
		Short: "Make a project with an API of your own, and change its kinds, versions and groups",
		Long: `Make a project with an API of your own, and change its kinds, versions and groups.

The files of a kind are as a person would write them, and yours: a file that is there is never
overwritten. Each change is made in a copy of the project, generated and compiled there, and brought
over when all of that succeeded. The same command once more changes nothing.`,
	}
	cmd.AddCommand(newNewCommand(), newKindCommand(), newVersionCommand(), newGroupCommand(), newUpgradeCommand())
	return cmd
}

// kindFlags are those that describe a kind.
type kindFlags struct {
	scope, plural                                 string
	subresources, shortNames, selectable, columns []string
	controller, roles                             bool
}

func (f *kindFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.scope, "scope", "Namespaced", "Namespaced or Cluster.")
	flags.StringVar(&f.plural, "plural", "",
		"Name of the resource. Default: the plural of the kind in English, in lower case.")
	flags.StringSliceVar(&f.subresources, "subresources", nil,
		"status, scale, log, NAME:action (a change on request, such as cancel:action) and NAME:stream (a session over "+
			"WebSocket), with commas between them.")
	flags.StringSliceVar(&f.shortNames, "short-names", nil, "Short names for kubectl.")
	flags.StringSliceVar(&f.selectable, "selectable", nil,
		"Fields by which objects are selected, such as spec.suspended:boolean; string is the default. They are "+
			"added to the types.")
	flags.StringSliceVar(&f.columns, "columns", nil,
		"Fields that kubectl get shows, such as spec.suspended:boolean; string is the default. They are added to the "+
			"types.")
	flags.BoolVar(&f.controller, "controller", false,
		"Write an example of a controller, too. It needs the subresource status.")
	flags.BoolVar(&f.roles, "roles", false,
		"Deploy ClusterRoles for users, too, which Kubernetes adds to view, edit and admin.")
}

// kind is what the flags say, with all that is wrong with them.
func (f *kindFlags) kind(name string) (Kind, []error) {
	k := Kind{Kind: name, Plural: f.plural, ShortNames: f.shortNames, Namespaced: f.scope == "Namespaced",
		Controller: f.controller, Roles: f.roles}
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
		Short: "Make a project with one kind",
		Example: `  go run ` + kit + `/cmd/scaffold@v0.2.0 new --dir=backup \
    --module=git.example.org/platform/backup --group=backup.example.org --kind=BackupPlan
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
	cmd.Flags().StringVar(&o.dir, "dir", "", "Directory of the project, which is empty or not there.")
	cmd.Flags().StringVar(&o.module, "module", "", "Go module of the project.")
	cmd.Flags().StringVar(&o.group, "group", "", "API group, such as backup.example.org.")
	cmd.Flags().StringVar(&kind, "kind", "", "The first kind, such as BackupPlan.")
	cmd.Flags().StringVar(&o.version, "version", firstVersion, "The first version, such as v1alpha1.")
	cmd.Flags().StringVar(&o.name, "name", "",
		"Name of the server, which ends with -apiserver. Default: that of the group's first label.")
	cmd.Flags().StringVar(&o.kit, "kit", "",
		"Directory of the kit. Default: that of this program's version, or of the module of the working directory.")
	flags.add(cmd)
	return cmd
}

// onProject returns what a command does with the project that it is called in.
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
	cmd := cli.Group(&cobra.Command{Use: "kind", Short: "Add or delete a kind"})
	var flags kindFlags
	var group, version, fromGroup string
	add := &cobra.Command{
		Use:   "add KIND",
		Short: "Add a kind: its types, rules, storage, tests and clients",
		Example: `  scaffold kind add BackupPlan --scope=Namespaced --subresources=status,scale --short-names=bp \
    --selectable=spec.suspended:boolean --columns=spec.schedule,spec.suspended
  scaffold kind add BackupRun --subresources=status,cancel:action,log --controller
  scaffold kind add Person --scope=Cluster --plural=people`,
		Args: cobra.ExactArgs(1),
	}
	add.RunE = onProject(func(w work, p *project, args []string) error {
		k, problems := flags.kind(args[0])
		if len(problems) > 0 {
			return errors.Join(append(problems, k.validate()...)...)
		}
		return w.addKind(p, group, version, k)
	})
	add.Flags().StringVar(&group, "group", "", "API group. Default: the only one.")
	add.Flags().StringVar(&version, "version", "", "Version that has the kind. Default: the preferred one.")
	flags.add(add)
	del := &cobra.Command{
		Use:     "delete KIND",
		Short:   "Delete a kind with all its files",
		Example: `  scaffold kind delete BackupPlan`,
		Args:    cobra.ExactArgs(1),
		RunE: onProject(func(w work, p *project, args []string) error {
			return w.deleteKind(p,
				fromGroup, args[0])
		}),
	}
	del.Flags().StringVar(&fromGroup, "group", "", "API group. Default: the only one.")
	cmd.AddCommand(add, del)
	return cmd
}

func newVersionCommand() *cobra.Command {
	cmd := cli.Group(&cobra.Command{Use: "version", Short: "Add or delete a version of a group"})
	var group, fromGroup string
	var hub bool
	add := &cobra.Command{
		Use:   "add VERSION",
		Short: "Add a version, which is a copy of the hub at first",
		Example: `  scaffold version add v2
  scaffold version add v2 --hub`,
		Args: cobra.ExactArgs(1),
		RunE: onProject(func(w work, p *project, args []string) error {
			return w.addVersion(p, group, args[0], hub)
		}),
	}
	add.Flags().StringVar(&group, "group", "", "API group. Default: the only one.")
	add.Flags().BoolVar(&hub, "hub", false,
		"Make it the hub: rules and hooks get its types, and the others are converted to it. What is stored does not "+
			"change.")
	del := &cobra.Command{
		Use:     "delete VERSION",
		Short:   "Delete a version that is not the stored one",
		Example: `  scaffold version delete v1`,
		Args:    cobra.ExactArgs(1),
		RunE: onProject(func(w work, p *project, args []string) error {
			return w.deleteVersion(p,
				fromGroup, args[0])
		}),
	}
	del.Flags().StringVar(&fromGroup, "group", "", "API group. Default: the only one.")
	cmd.AddCommand(add, del)
	return cmd
}

func newGroupCommand() *cobra.Command {
	cmd := cli.Group(&cobra.Command{Use: "group", Short: "Add a group, or rename one"})
	var flags kindFlags
	var kind string
	add := &cobra.Command{
		Use:     "add GROUP",
		Short:   "Add a group with its first kind",
		Example: `  scaffold group add storage.example.org --kind=Bucket --scope=Cluster`,
		Args:    cobra.ExactArgs(1),
	}
	add.RunE = onProject(func(w work, p *project, args []string) error {
		k, problems := flags.kind(kind)
		if len(problems) > 0 {
			return errors.Join(append(problems, k.validate()...)...)
		}
		return w.addGroup(p, args[0], k)
	})
	add.Flags().StringVar(&kind, "kind", "", "The first kind of the group.")
	flags.add(add)
	rename := &cobra.Command{
		Use:     "rename GROUP NEW",
		Short:   "Give a group another name, before anybody uses it",
		Example: `  scaffold group rename backup.example.org backup.platform.example.org`,
		Args:    cobra.ExactArgs(2),
		RunE:    onProject(func(w work, p *project, args []string) error { return w.renameGroup(p, args[0], args[1]) }),
	}
	cmd.AddCommand(add, rename)
	return cmd
}

func newUpgradeCommand() *cobra.Command {
	filesOnly := false
	cmd := &cobra.Command{
		Use:   "upgrade [VERSION]",
		Short: "Take another version of the kit (default: the newest)",
		Long: `Take another version of the kit: its module, its generators, and its files in kit/. A file
there that you edited is named and kept. Where go.mod refers to a directory by replace, what is
there now is taken.`,
		Example: `  scaffold upgrade
  scaffold upgrade v0.2.0`,
		Args: cobra.MaximumNArgs(1),
		RunE: onProject(func(w work, p *project, args []string) error {
			if filesOnly {
				return w.takeFiles(p)
			}
			return w.upgrade(p, strings.Join(args, ""))
		}),
	}
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "The second half, which the new version does.")
	_ = cmd.Flags().MarkHidden("files-only") // the flag is there
	return cmd
}
