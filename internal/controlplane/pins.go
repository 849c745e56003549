// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"example.com/extension-apiserver/internal/gobuild"
)

// pins contains the modules from which the programs of a control plane are built. They are plain
// files, because a module zip omits the modules inside it.
//
//go:embed pins
var pins embed.FS

// DefaultMinor is the minor version of Kubernetes whose control plane is started, unless the
// variable ENVTEST_K8S_VERSION names another. The libraries of the kit have this version.
const DefaultMinor = "1.37"

// minorVariable is named as in the projects of kubebuilder.
const minorVariable = "ENVTEST_K8S_VERSION"

// Minor returns the minor version of Kubernetes whose control plane is started, such as 1.36.
func Minor() string { return cmp.Or(os.Getenv(minorVariable), DefaultMinor) }

// checkMinor returns an error if the minor version is not pinned.
func checkMinor() error {
	entries, err := pins.ReadDir("pins")
	if err != nil {
		panic(err) // it is compiled in
	}
	var minors []string
	for _, entry := range entries {
		if minor, ok := strings.CutSuffix(entry.Name(), ".mod"); ok && minor != konnectivityPins {
			minors = append(minors, minor)
		}
	}
	if slices.Contains(minors, Minor()) {
		return nil
	}
	return fmt.Errorf("%s is %q: must be one of %s", minorVariable, Minor(), strings.Join(minors, ", "))
}

// program is a command and the pins that contain it. Empty pins are those of the minor version.
type program struct{ name, pins, pkg string }

// set returns the name of the pins that contain the program.
func (p program) set() string { return cmp.Or(p.pins, Minor()) }

const konnectivityPins = "konnectivity"

// programs lists all programs that the cache may contain.
var programs = []program{
	{"etcd", "", "go.etcd.io/etcd/server/v3"},
	{"kube-apiserver", "", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kubectl", "", "k8s.io/kubernetes/cmd/kubectl"},
	{"kube-controller-manager", "", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-proxy", "", "k8s.io/kubernetes/cmd/kube-proxy"},
	{"sample-apiserver", "", "k8s.io/sample-apiserver"},
	{"proxy-server", konnectivityPins, "sigs.k8s.io/apiserver-network-proxy/cmd/server"},
	{"proxy-agent", konnectivityPins, "sigs.k8s.io/apiserver-network-proxy/cmd/agent"},
}

// pinned returns the version of a module in the pins, without the v, or "" if they do not contain
// it. golang.org/x/mod could read it too, but would have to be downloaded before a command can
// print its first message about failed downloads.
func pinned(set, module string) string {
	required := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + ` v(\S+)`)
	if version := required.FindSubmatch(pinsFile(set + ".mod")); version != nil {
		return string(version[1])
	}
	return ""
}

func pinsFile(name string) []byte {
	data, err := pins.ReadFile("pins/" + name)
	if err != nil {
		panic(err)
	}
	return data
}

// execName returns the name that go build gives the program: the last element of its package that
// is not a version.
func (p program) execName() string {
	dir, name := path.Split(p.pkg)
	if versionElement.MatchString(name) {
		name = path.Base(dir)
	}
	return name
}

var versionElement = regexp.MustCompile(`^v\d+$`)

// writePins writes the module of the pins into a directory.
func writePins(set, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for from, to := range map[string]string{set + ".mod": "go.mod", set + ".sum": "go.sum"} {
		if err := os.WriteFile(filepath.Join(dir, to), pinsFile(from), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// buildArgs returns the arguments of go that build programs of the pins, without files and
// packages.
func buildArgs(set string) []string {
	return slices.Concat([]string{"build"}, strings.Fields(gobuild.Flags),
		[]string{"-buildvcs=false", "-mod=readonly", "-ldflags=-s -w" + versionFlags(pinned(set, "k8s.io/kubernetes"))})
}

// VersionFlags returns linker flags that stamp the version of DefaultMinor, for programs that are
// built with the libraries of the kit.
func VersionFlags() string { return versionFlags(pinned(DefaultMinor, "k8s.io/kubernetes")) }

// versionFlags returns linker flags that stamp the version of Kubernetes in both packages that
// hold one. A plain build reports v0.0.0-master+$Format:%H$, which neither kubectl nor the
// emulation of the feature gates can parse.
func versionFlags(version string) string {
	if version == "" {
		return ""
	}
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	var flags strings.Builder
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		fmt.Fprintf(&flags, " -X %[1]s.gitVersion=v%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X "+
			"%[1]s.gitTreeState=clean", pkg, version, major, minor)
	}
	return flags.String()
}

// cacheKey returns a key that changes with everything that the programs depend on: the pins, how
// they are built, the version of Go, and the platform.
func cacheKey() string {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, p := range programs {
		fmt.Fprintf(sum, "%q %s %s%s", buildArgs(p.set()), p.pkg, pinsFile(p.set()+".mod"), pinsFile(p.set()+".sum"))
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:12]
}
