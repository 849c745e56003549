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

// groupOf returns the group with its package, which has the name of its first label.
func groupOf(name string) Group {
	first, _, _ := strings.Cut(name, ".")
	return Group{Name: name, Package: strings.ReplaceAll(first, "-", "")}
}

// Reversed returns the group's labels in reverse order, as in OpenAPI: org.example.backup.
func (g Group) Reversed() string {
	labels := strings.Split(g.Name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// OtherLabel returns whether client-gen derives another name of the group than its package's,
// because the first label has a hyphen or the group was renamed.
func (g Group) OtherLabel() bool { return !strings.HasPrefix(g.Name, g.Package+".") }

// validateGroup returns the errors of a group name.
func validateGroup(name string) []error {
	var problems []error
	for _, wrong := range validation.IsDNS1123Subdomain(name) {
		problems = append(problems, fmt.Errorf("group %q: %s", name, wrong))
	}
	switch {
	case len(problems) > 0:
	case !strings.Contains(name, "."):
		problems = append(problems, fmt.Errorf("group %q: expected a name with a dot, such as %s.example.com", name,
			name))
	case name == "k8s.io" || name == "kubernetes.io" || strings.HasSuffix(name, ".k8s.io") ||
		strings.HasSuffix(name, ".kubernetes.io"):
		problems = append(problems,
			fmt.Errorf("group %q: *.k8s.io and *.kubernetes.io are reserved for Kubernetes", name))
	default:
		problems = append(problems, validatePackage("group "+name, groupOf(name).Package)...)
	}
	return problems
}

// reservedNames are packages that the files of a kind or group import, folders of a project, and
// names with a meaning in Go.
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
			"%s: its Go package would have the name %q, expected a name that starts with a letter and is "+
				"not a keyword", what, name)}
	case slices.Contains(reservedNames, name) || versionName.MatchString(name):
		return []error{fmt.Errorf("%s: its Go package would have the name %q, which another package has", what, name)}
	}
	return nil
}

// kindName matches kinds as the API conventions define them.
var kindName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// versionName matches versions that kube-apiserver can order.
var versionName = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

func validateVersion(version string) []error {
	if !versionName.MatchString(version) {
		return []error{fmt.Errorf("version %q: expected a name such as v1 or v1beta1", version)}
	}
	return nil
}

func validateModule(path string) []error {
	if err := module.CheckImportPath(path); err != nil {
		return []error{fmt.Errorf("module %q: %w", path, err)}
	}
	return nil
}

// plural returns the plural that client generators use for a kind.
func plural(kind string) string {
	return namer.NewAllLowercasePluralNamer(nil).Name(&types.Type{Name: types.Name{Name: kind}})
}

// GroupMethod returns the group's name in generated clients, such as Backup.
func (d data) GroupMethod() string { return namer.IC(d.Group.Package) }

// VersionMethod returns V1.
func (d data) VersionMethod() string { return namer.IC(d.Version) }

// PluralMethod returns the kind's plural in generated clients, such as BackupPlans, and People for
// the kind Person. scripts/generate.sh derives it in the same way.
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

// Field is a field of a flag, such as spec.suspended:boolean.
type Field struct {
	Path, Type string // of the API: spec.suspended; string, boolean or integer
	Number     int    // in protobuf
}

// methods are the methods of generated code for protobuf and copies.
var methods = []string{
	"DeepCopy", "DeepCopyInto", "DeepCopyObject", "Descriptor", "Marshal", "MarshalTo", "MarshalToSizedBuffer",
	"OpenAPIModelName", "ProtoMessage", "Reset",
	"Size", "String", "Unmarshal",
}

// parseField parses PATH or PATH:TYPE.
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
			"field %q: expected spec.NAME or status.NAME, with its type if it is not a string: spec.suspended:boolean",
			text)
	}
	if slices.Contains(methods, f.GoName()) {
		return f, fmt.Errorf("field %s: generated code has a method %s; choose another name", path, f.GoName())
	}
	if !slices.Contains([]string{"string", "boolean", "integer"}, kind) {
		return f, fmt.Errorf("field %s: type %q, expected string, boolean or integer", path, kind)
	}
	return f, nil
}

// Name returns the last element, such as suspended.
func (f Field) Name() string { _, name, _ := strings.Cut(f.Path, "."); return name }

// GoName returns the Go name, such as Suspended.
func (f Field) GoName() string { return upperFirst(f.Name()) }

// GoType returns the Go type of the field.
func (f Field) GoType() string {
	return map[string]string{"string": "string", "boolean": "bool", "integer": "int64"}[f.Type]
}

// Wire returns the wire type of protobuf.
func (f Field) Wire() string {
	if f.Type == "string" {
		return "bytes"
	}
	return "varint"
}

// wordEnd matches the end of a word in a name, and the capital letter of the next one.
var wordEnd = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// Heading returns the heading of a column, such as "Last Schedule" for lastSchedule. kubectl prints
// it in capital letters, which do not separate words.
func (f Field) Heading() string { return wordEnd.ReplaceAllString(f.GoName(), "$1 $2") }

// value returns the Go expression of the field of a variable.
func (f Field) value(variable string) string {
	parent, _, _ := strings.Cut(f.Path, ".")
	return variable + "." + upperFirst(parent) + "." + f.GoName()
}

// Text returns the Go expression for a field selector.
func (f Field) Text(variable string) string {
	switch f.Type {
	case "boolean":
		return "strconv.FormatBool(" + f.value(variable) + ")"
	case "integer":
		return "strconv.FormatInt(" + f.value(variable) + ", 10)"
	}
	return f.value(variable)
}

// Cell returns the Go expression for a cell of a table.
func (f Field) Cell(variable string) string { return f.value(variable) }

func upperFirst(s string) string {
	r := []rune(s)
	r[0] = unicode.ToUpper(r[0])
	return string(r)
}

// lowerFirst returns backupPlan for BackupPlan, and dnsRecord for DNSRecord.
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

// Kind describes a kind, from flags or from its files.
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
	Source     string // cached or live; empty if objects are stored in etcd
	hub        string // the version of its Go type; empty if it has an internal type
}

// Subresource is a subresource other than status and scale.
type Subresource struct {
	Name string // fail-over
	Type string // action, log, stream; empty if it is not generated
}

// parseSubresource parses NAME:TYPE or log.
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
		return s, fmt.Errorf("subresource %q: %s", name, wrong)
	}
	return s, nil
}

// String returns the subresource as the flag has it.
func (s Subresource) String() string {
	if s.Type == "" || s.Name == "log" {
		return s.Name
	}
	return s.Name + ":" + s.Type
}

// GoName returns the Go name, such as FailOver.
func (s Subresource) GoName() string {
	words := strings.Split(s.Name, "-")
	for i := range words {
		if words[i] != "" {
			words[i] = upperFirst(words[i])
		}
	}
	return strings.Join(words, "")
}

// HasMethod says whether the generated client can have a method for it: applyconfiguration-gen
// makes Go names of subresources as they are.
func (s Subresource) HasMethod() bool { return !strings.Contains(s.Name, "-") }

// Function returns the name of the Go function of an action, such as failOverDatabase.
func (s Subresource) Function(kind string) string { return lowerFirst(s.GoName()) + kind }

// Actions returns the subresources that change an object on request.
func (k Kind) Actions() []Subresource { return k.othersOf("action") }

// ActionBodies is the element of the map of api_test.go: "BackupRun": {"cancel": {"reason":
// "conformance"}}.
func (k Kind) ActionBodies() string {
	var bodies []string
	for _, s := range k.Actions() {
		bodies = append(bodies, fmt.Sprintf(`%q: {"reason": "conformance"}`, s.Name))
	}
	return fmt.Sprintf("%q: {%s}", k.Kind, strings.Join(bodies, ", "))
}

// Streams returns the subresources with sessions over WebSocket.
func (k Kind) Streams() []Subresource { return k.othersOf("stream") }

// HasLog returns whether the kind has the subresource log.
func (k Kind) HasLog() bool { return len(k.othersOf("log")) > 0 }

// HasSubresources returns whether the kind has subresources.
func (k Kind) HasSubresources() bool { return k.Status || len(k.Others) > 0 }

func (k Kind) othersOf(kind string) []Subresource {
	return slices.DeleteFunc(slices.Clone(k.Others), func(s Subresource) bool { return s.Type != kind })
}

// Package returns the name of the kind's package and files, such as backupplan.
func (k Kind) Package() string { return strings.ToLower(k.Kind) }

// Singular returns the singular of the resource.
func (k Kind) Singular() string { return strings.ToLower(k.Kind) }

// Variable returns the name of a Go variable for an object, such as backupPlan.
func (k Kind) Variable() string {
	name := lowerFirst(k.Kind)
	if token.IsKeyword(name) || slices.Contains([]string{"string", "error", "any", "new", "len", "field", "runtime",
		"s", "obj", "old"}, name) {
		name += "Object"
	}
	return name
}

// Letter returns a short name of a Go variable for an object.
func (k Kind) Letter() string { return strings.ToLower(k.Kind[:1]) }

// Irregular returns whether code-generator derives another plural.
func (k Kind) Irregular() bool { return k.Plural != plural(k.Kind) }

// NeedsStrconv returns whether a selectable field is not a string.
func (k Kind) NeedsStrconv() bool {
	return slices.ContainsFunc(k.Selectable, func(f Field) bool { return f.Type != "string" })
}

// SpecFields returns the fields of the spec that flags add, in the order of their protobuf numbers.
func (k Kind) SpecFields() []Field { return k.fieldsOf("spec", 3) }

// StatusFields returns the fields of the status that flags add.
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

// validate returns all errors of a new kind.
func (k Kind) validate() []error {
	var problems []error
	if !kindName.MatchString(k.Kind) {
		return []error{fmt.Errorf("kind %q: expected a name such as BackupPlan", k.Kind)}
	}
	if strings.HasSuffix(k.Kind, "List") || strings.HasSuffix(k.Kind, "Options") || k.Kind == "IdentityReview" ||
		k.Kind == "WatchEvent" {
		problems = append(problems,
			fmt.Errorf("kind %q: reserved by Kubernetes or the kit; choose another name", k.Kind))
	}
	problems = append(problems, validatePackage("kind "+k.Kind, k.Package())...)
	for _, name := range append([]string{k.Plural}, k.ShortNames...) {
		for _, wrong := range validation.IsDNS1123Label(name) {
			problems = append(problems, fmt.Errorf("resource %q: %s", name, wrong))
		}
	}
	if k.Plural == k.Singular() {
		problems = append(problems, fmt.Errorf("kind %s: singular and plural are both %q; set --plural",
			k.Kind, k.Plural))
	}
	if k.Scale && !k.Status {
		problems = append(problems,
			errors.New("--subresources has scale without status: the subresource scale returns the replicas of "+
				"the status"))
	}
	if k.Controller && !k.Status {
		problems = append(problems,
			errors.New("--controller is set and --subresources has no status: the controller writes "+
				"the status"))
	}
	problems = append(problems, k.validateSource()...)
	names := map[string]bool{}
	for _, s := range k.Others {
		if names[s.Name] {
			problems = append(problems, fmt.Errorf("--subresources has %s twice", s.Name))
		}
		names[s.Name] = true
		if s.Type == "action" && !k.Status {
			problems = append(problems, fmt.Errorf("--subresources has the action %s without status: the "+
				"action sets a condition", s.Name))
		}
	}
	types := map[string]string{}
	for _, f := range slices.Concat(k.Selectable, k.Columns) {
		if strings.HasPrefix(f.Path, "status.") && !k.Status {
			problems = append(problems, fmt.Errorf("field %s: --subresources has no status", f.Path))
		}
		if slices.Contains(standardFields, f.Path) && (f.Path != "spec.description" || f.Type != "string") {
			problems = append(problems,
				fmt.Errorf("field %s: each kind has it; add its column or selector in the "+
					"package of the kind", f.Path))
		}
		if before, ok := types[f.Path]; ok && before != f.Type {
			problems = append(problems, fmt.Errorf("field %s: has the types %s and %s", f.Path, before, f.Type))
		}
		types[f.Path] = f.Type
	}
	return problems
}

// validateSource returns the errors of a kind whose objects another system has.
func (k Kind) validateSource() []error {
	var problems []error
	if !slices.Contains([]string{"", "cached", "live"}, k.Source) {
		problems = append(problems, fmt.Errorf("--source is %q, expected cached or live", k.Source))
	}
	if k.Source == "" {
		return problems
	}
	if k.Status || k.Scale || len(k.Actions()) > 0 {
		problems = append(problems, fmt.Errorf("--source=%s is set and --subresources has status, scale or an action: "+
			"the kind is read-only", k.Source))
	}
	if k.Source == "live" && len(k.Others) > 0 {
		problems = append(problems, errors.New("--source=live is set and --subresources is not empty: only kinds with "+
			"--source=cached can have subresources"))
	}
	return problems
}
