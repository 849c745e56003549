// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// encode writes one YAML document for each object, fields in the order of the alphabet.
func encode[T any](objects ...T) ([]byte, error) {
	var docs [][]byte
	for _, o := range objects {
		doc, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("encode manifest: %w", err)
		}
		docs = append(docs, doc)
	}
	return bytes.Join(docs, []byte("---\n")), nil
}

// WriteFile replaces path by a file of mode 0600 with data, in one step: nobody reads half a manifest, and a file that
// was there with a wider mode does not lend it to the new one.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".certgen-*") // always of mode 0600
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write manifest: %w", err), os.Remove(f.Name()))
	}
	return nil
}
