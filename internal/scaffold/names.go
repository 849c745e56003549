// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"errors"
	"fmt"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/mod/module"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/gengo/v2/namer"
	"k8s.io/gengo/v2/types"
)

// Group is an API group.
type Group struct {
	Name    string // backup.example.org
	Package string // backup
}

// groupOf names the package of a group after its first label.
func groupOf(name string) Group {
	first, _, _ := strings.Cut(name, ".")
	return Group{Name: name, Package: strings.ReplaceAll(first, "-", "")}
}

// Reversed is the group as OpenAPI has it: org.example.backup.
func (g Group) Reversed() string {
	labels := strings.Split(g.Name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// OtherLabel says whether client-gen would make another name of the group than that of its package: since the first
// label has a hyphen, or the group was renamed.
func (g Group) OtherLabel() bool { return !strings.HasPrefix(g.Name, g.Package+".") }

// validateGroup returns what is wrong with the name of a group.
func validateGroup(name string) []error {
	var problems []error
	for _, wrong := range validation.IsDNS1123Subdomain(name) {
		problems = append(problems, fmt.Errorf("the group is %q: %s", name, wrong))
	}
	switch {
	case len(problems) > 0:
	case !strings.Contains(name, "."):
		problems = append(problems, fmt.Errorf("the group is %q, expected one with a dot, such as %s.example.com", name,
			name))
	case name == "k8s.io" || name == "kubernetes.io" || strings.HasSuffix(name, ".k8s.io") ||
		strings.HasSuffix(name, ".kubernetes.io"):
		problems = append(problems,
			fmt.Errorf("the group is %q: *.k8s.io and *.kubernetes.io are reserved for Kubernetes", name))
	default:
		problems = append(problems, validatePackage("the group "+name, groupOf(name).Package)...)
	}
	return problems
}

// reservedNames are the packages that the files of a kind or a group import, folders of a project, and names with a
// meaning to Go.
var reservedNames = []string{
	"apiequality", "apis", "apiserver", "apivalidation", "authorizer", "autoscalingv1", "client", "cmp", "context",
	"embeddedetcd", "field", "fieldpath",
	"fields", "fmt", "generic", "genericapirequest", "genericregistry", "init", "install", "internal", "labels", "main",
	"managedfields", "metav1", "openapi",
	"registry", "rest", "runtime", "schema", "strategy", "strconv", "strings", "subresource", "table", "testing",
	"utilruntime", "vendor",
}

func validatePackage(what, name string) []error {
	switch {
	case !token.IsIdentifier(name):
		return []error{fmt.Errorf(
			"%s would be the Go package %q, which is no name for one; expected one that begins with a letter and is "+
				"no keyword", what, name)}
	case slices.Contains(reservedNames, name) || versionName.MatchString(name):
		return []error{fmt.Errorf("%s would be the Go package %q, which is another's name; choose another", what, name)}
	}
	return nil
}

// kindName has the kinds as the API conventions have them.
var kindName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// versionName has the versions whose order kube-apiserver knows.
var versionName = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

func validateVersion(version string) []error {
	if !versionName.MatchString(version) {
		return []error{fmt.Errorf("the version is %q, expected a name such as v1 or v1beta1", version)}
	}
	return nil
}

func validateModule(path string) []error {
	if err := module.CheckImportPath(path); err != nil {
		return []error{fmt.Errorf("the module is %q: %w", path, err)}
	}
	return nil
}

// plural is the name of a kind's resource that the generators of clients find.
func plural(kind string) string {
	return namer.NewAllLowercasePluralNamer(nil).Name(&types.Type{Name: types.Name{Name: kind}})
}

// GroupMethod, VersionMethod and PluralMethod are the names in the generated clients: Backup, V1, BackupPlans.
func (d data) GroupMethod() string { return namer.IC(d.Group.Package) }

// VersionMethod is V1.
func (d data) VersionMethod() string { return namer.IC(d.Version) }

// PluralMethod is BackupPlans, and People for the kind Person: scripts/generate.sh makes it of the plural in the same
// way.
func (d data) PluralMethod() string {
	if !d.Irregular() {
		return namer.NewPublicPluralNamer(nil).Name(&types.Type{Name: types.Name{Name: d.Kind}})
	}
	same := 0
	for lower := d.Singular(); same < len(lower) && same < len(d.Plural) && lower[same] == d.Plural[same]; same++ {
		continue
	}
	return upperFirst(d.Kind[:same] + d.Plural[same:])
}

// Field is one that a flag names: spec.suspended:boolean.
type Field struct {
	Path, Type string // of the API: spec.suspended; string, boolean or integer
	Number     int    // in protobuf
}

// methods are those of the code that is generated for protobuf and copies.
var methods = []string{
	"DeepCopy", "DeepCopyInto", "DeepCopyObject", "Descriptor", "Marshal", "MarshalTo", "MarshalToSizedBuffer",
	"OpenAPIModelName", "ProtoMessage", "Reset",
	"Size", "String", "Unmarshal",
}

// parseField reads PATH or PATH:TYPE.
func parseField(text string) (Field, error) {
	path, kind, typed := strings.Cut(text, ":")
	if !typed {
		kind = "string"
	}
	f := Field{Path: path, Type: kind}
	parent, name, _ := strings.Cut(path, ".")
	if parent != "spec" && parent != "status" || !regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`).MatchString(name) ||
		token.IsKeyword(name) {
		return f, fmt.Errorf(
			"a field is %q, expected spec.NAME or status.NAME, with a type if it is no string: spec.suspended:boolean",
			text)
	}
	if slices.Contains(methods, f.GoName()) {
		return f, fmt.Errorf("a field is %s, and generated code has a method %s; choose another name", path, f.GoName())
	}
	if !slices.Contains([]string{"string", "boolean", "integer"}, kind) {
		return f, fmt.Errorf("the type of the field %s is %q, expected string, boolean or integer", path, kind)
	}
	return f, nil
}

// Name is the last element, suspended.
func (f Field) Name() string { _, name, _ := strings.Cut(f.Path, "."); return name }

// GoName is Suspended.
func (f Field) GoName() string { return upperFirst(f.Name()) }

// GoType is that of the field.
func (f Field) GoType() string {
	return map[string]string{"string": "string", "boolean": "bool", "integer": "int64"}[f.Type]
}

// Wire is the type in protobuf.
func (f Field) Wire() string {
	if f.Type == "string" {
		return "bytes"
	}
	return "varint"
}

// Heading is that of a column: Suspended.
func (f Field) Heading() string { return f.GoName() }

// value is the Go expression of the field of a variable.
func (f Field) value(variable string) string {
	parent, _, _ := strings.Cut(f.Path, ".")
	return variable + "." + upperFirst(parent) + "." + f.GoName()
}

// Text is the expression for a field selector.
func (f Field) Text(variable string) string {
	switch f.Type {
	case "boolean":
		return "strconv.FormatBool(" + f.value(variable) + ")"
	case "integer":
		return "strconv.FormatInt(" + f.value(variable) + ", 10)"
	}
	return f.value(variable)
}

// Cell is the expression for a cell of a table.
func (f Field) Cell(variable string) string { return f.value(variable) }

func upperFirst(s string) string {
	r := []rune(s)
	r[0] = unicode.ToUpper(r[0])
	return string(r)
}

// lowerFirst is backupPlan for BackupPlan, and dnsRecord for DNSRecord.
func lowerFirst(s string) string {
	r := []rune(s)
	for i := range r {
		if i > 0 && (!unicode.IsUpper(r[i]) || i+1 < len(r) && unicode.IsLower(r[i+1])) {
			break
		}
		r[i] = unicode.ToLower(r[i])
	}
	return string(r)
}

// Kind is what is known of a kind: given by flags, or read from its files.
type Kind struct {
	Kind       string
	Plural     string
	Namespaced bool
	Status     bool
	Scale      bool
	Controller bool // an example of one
	Roles      bool // the project has roles for users
	ShortNames []string
	Selectable []Field
	Columns    []Field
	Others     []Subresource
	hub        string // the version of its Go type; empty if it has an internal type
}

// Subresource is one beside status and scale.
type Subresource struct {
	Name string // fail-over
	Type string // action, log, stream; empty if it is written by hand
}

// parseSubresource reads NAME:TYPE, or log.
func parseSubresource(text string) (Subresource, error) {
	name, kind, _ := strings.Cut(text, ":")
	s := Subresource{name, kind}
	if name == "log" && (kind == "" || kind == "stream") {
		s.Type = "log"
	}
	if !slices.Contains([]string{"action", "log", "stream"}, s.Type) || s.Type == "log" && name != "log" {
		return s, fmt.Errorf("--subresources has %q, expected status, scale, log, NAME:action or NAME:stream", text)
	}
	for _, wrong := range validation.IsDNS1035Label(name) {
		return s, fmt.Errorf("the name %q of a subresource: %s", name, wrong)
	}
	return s, nil
}

// String is the text of the flag.
func (s Subresource) String() string {
	if s.Type == "" || s.Name == "log" {
		return s.Name
	}
	return s.Name + ":" + s.Type
}

// GoName is FailOver.
func (s Subresource) GoName() string {
	words := strings.Split(s.Name, "-")
	for i := range words {
		if words[i] != "" {
			words[i] = upperFirst(words[i])
		}
	}
	return strings.Join(words, "")
}

// HasMethod says whether the generated client can have a method for it: applyconfiguration-gen makes Go names of
// subresources as they are.
func (s Subresource) HasMethod() bool { return !strings.Contains(s.Name, "-") }

// Function is the Go function of an action of a kind: failOverDatabase.
func (s Subresource) Function(kind string) string { return lowerFirst(s.GoName()) + kind }

// Actions are the subresources that change an object on request.
func (k Kind) Actions() []Subresource { return k.othersOf("action") }

// ActionBodies is the element of the map of api_test.go: "BackupRun": {"cancel": {"reason": "conformance"}}.
func (k Kind) ActionBodies() string {
	var bodies []string
	for _, s := range k.Actions() {
		bodies = append(bodies, fmt.Sprintf(`%q: {"reason": "conformance"}`, s.Name))
	}
	return fmt.Sprintf("%q: {%s}", k.Kind, strings.Join(bodies, ", "))
}

// Streams are the subresources that connect clients with sessions.
func (k Kind) Streams() []Subresource { return k.othersOf("stream") }

// HasLog says whether there is the subresource log.
func (k Kind) HasLog() bool { return len(k.othersOf("log")) > 0 }

// HasSubresources says whether there are any.
func (k Kind) HasSubresources() bool { return k.Status || len(k.Others) > 0 }

func (k Kind) othersOf(kind string) []Subresource {
	return slices.DeleteFunc(slices.Clone(k.Others), func(s Subresource) bool { return s.Type != kind })
}

// Package is the Go package of its storage, and the name of its files: backupplan.
func (k Kind) Package() string { return strings.ToLower(k.Kind) }

// Singular is the name of one.
func (k Kind) Singular() string { return strings.ToLower(k.Kind) }

// Variable is a name for an object in Go: backupPlan.
func (k Kind) Variable() string {
	name := lowerFirst(k.Kind)
	if token.IsKeyword(name) || slices.Contains([]string{"string", "error", "any", "new", "len", "field", "runtime",
		"s", "obj", "old"}, name) {
		name += "Object"
	}
	return name
}

// Letter is a short one.
func (k Kind) Letter() string { return strings.ToLower(k.Kind[:1]) }

// Irregular says whether the plural is none that code-generator would find.
func (k Kind) Irregular() bool { return k.Plural != plural(k.Kind) }

// NeedsStrconv says whether selectable fields are turned into strings.
func (k Kind) NeedsStrconv() bool {
	return slices.ContainsFunc(k.Selectable, func(f Field) bool { return f.Type != "string" })
}

// SpecFields are the fields of the spec that flags named, in the order of their numbers.
func (k Kind) SpecFields() []Field { return k.fieldsOf("spec", 3) }

// StatusFields are those of the status.
func (k Kind) StatusFields() []Field { return k.fieldsOf("status", 5) }

func (k Kind) fieldsOf(parent string, number int) []Field {
	var out []Field
	for _, f := range slices.Concat(k.Selectable, k.Columns) {
		if !strings.HasPrefix(f.Path, parent+".") || slices.Contains(standardFields, f.Path) ||
			slices.ContainsFunc(out, func(o Field) bool { return o.Path == f.Path }) {
			continue
		}
		f.Number = number
		number++
		out = append(out, f)
	}
	return out
}

// standardFields are the fields that each kind has.
var standardFields = []string{"spec.description", "spec.replicas", "status.observedGeneration", "status.conditions",
	"status.replicas", "status.selector"}

// validate returns all that is wrong with a kind that is to be added.
func (k Kind) validate() []error {
	var problems []error
	if !kindName.MatchString(k.Kind) {
		return []error{fmt.Errorf("the kind is %q, expected a name such as BackupPlan", k.Kind)}
	}
	if strings.HasSuffix(k.Kind, "List") || strings.HasSuffix(k.Kind, "Options") || k.Kind == "IdentityReview" ||
		k.Kind == "WatchEvent" {
		problems = append(problems,
			fmt.Errorf("the kind is %q, a name that Kubernetes or the kit needs itself; choose another", k.Kind))
	}
	problems = append(problems, validatePackage("the kind "+k.Kind, k.Package())...)
	for _, name := range append([]string{k.Plural}, k.ShortNames...) {
		for _, wrong := range validation.IsDNS1123Label(name) {
			problems = append(problems, fmt.Errorf("the name %q of the resource: %s", name, wrong))
		}
	}
	if k.Plural == k.Singular() {
		problems = append(problems, fmt.Errorf("the plural of %s is its singular, %q; set another with --plural",
			k.Kind, k.Plural))
	}
	if k.Scale && !k.Status {
		problems = append(problems,
			errors.New("--subresources has scale without status, expected both: a scale has the number of replicas "+
				"that there are"))
	}
	if k.Controller && !k.Status {
		problems = append(problems,
			errors.New("--controller is set and --subresources has no status, expected both: the controller writes "+
				"the status"))
	}
	names := map[string]bool{}
	for _, s := range k.Others {
		if names[s.Name] {
			problems = append(problems, fmt.Errorf("--subresources has %s twice", s.Name))
		}
		names[s.Name] = true
		if s.Type == "action" && !k.Status {
			problems = append(problems, fmt.Errorf("--subresources has the action %s without status, expected both: the "+
				"action writes a condition", s.Name))
		}
	}
	types := map[string]string{}
	for _, f := range slices.Concat(k.Selectable, k.Columns) {
		if strings.HasPrefix(f.Path, "status.") && !k.Status {
			problems = append(problems, fmt.Errorf("the field is %s, and --subresources has no status", f.Path))
		}
		if slices.Contains(standardFields, f.Path) && (f.Path != "spec.description" || f.Type != "string") {
			problems = append(problems,
				fmt.Errorf("the field %s is there in any case, expected others; change its column or its selection "+
					"in the package of the kind", f.Path))
		}
		if before, ok := types[f.Path]; ok && before != f.Type {
			problems = append(problems, fmt.Errorf("the field %s is once %s and once %s", f.Path, before, f.Type))
		}
		types[f.Path] = f.Type
	}
	return problems
}
