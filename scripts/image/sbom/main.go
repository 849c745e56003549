// SPDX-License-Identifier: Apache-2.0

// Command sbom writes the software bill of materials of Go binaries, or of the image that holds
// them, as CycloneDX 1.6 in JSON. It reads the build info that the Go linker wrote into each
// binary, as `go version -m` does, so that the list always matches the linked modules. The same
// binaries and flags give the same bytes.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// options holds the flags and arguments.
type options struct {
	// version is the version of the main module. Go does not record it with -buildvcs=false.
	version string
	// image is NAME:TAG@sha256:..., the image that holds the binaries. It is empty for the SBOM
	// of one binary.
	image    string
	binaries []string
}

func main() {
	var o options
	out := flag.String("out", "", "File to write. Required.")
	flag.StringVar(&o.version, "version", "", "Version of the main module. Required.")
	flag.StringVar(&o.image, "image", "",
		"NAME:TAG@DIGEST of the image with the binaries, one for each platform.")
	flag.Parse()
	o.binaries = flag.Args()
	if err := write(*out, o); err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %v\n", err)
		os.Exit(1)
	}
}

func write(out string, o options) error {
	if out == "" || o.version == "" || len(o.binaries) == 0 || (o.image == "" && len(o.binaries) != 1) {
		return fmt.Errorf("expected --out FILE, --version VERSION and one binary, or more with --image; found --out "+
			"%q, --version %q, %d binaries",
			out, o.version, len(o.binaries))
	}
	bom, err := describe(o)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom,
		cdx.SpecVersion1_6); err != nil {
		return err
	}
	return os.WriteFile(out, b.Bytes(), 0o644) //nolint:gosec // it is published
}
