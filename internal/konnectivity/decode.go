// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/catalogue"
)

const egressKind = "EgressSelectorConfiguration"

// decoder is strict, because a misspelt field is a missing setting.
var decoder = serializer.NewCodecFactory(clientgoscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// decode adds the documents of a file to the set. A document that cannot be decoded is a
// finding.
func (s *set) decode(path string, data []byte) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = s.decodeDocument(path, doc)
		}
		if err != nil {
			s.unread = append(s.unread, catalogue.Finding{Object: path, Evidence: err.Error()})
			return
		}
	}
}

func (s *set) decodeDocument(path string, doc []byte) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &meta); err != nil {
		return err
	}
	switch meta.Kind {
	case "": // only comments, or a patch
		return nil
	case egressKind:
		s.egresses = append(s.egresses, egressFile{path, filepath.Base(path), doc})
		return nil
	}
	value, _, err := decoder.Decode(doc, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return nil // not a workload
	}
	if err != nil {
		return fmt.Errorf("%s: %w", meta.Kind, err)
	}
	s.objects = append(s.objects, object{path, value})
	if cm, ok := value.(*corev1.ConfigMap); ok {
		s.decodeConfigMap(path, cm)
	}
	return nil
}

// decodeConfigMap finds the configuration of a kube-apiserver that runs in a pod.
func (s *set) decodeConfigMap(path string, cm *corev1.ConfigMap) {
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		var meta metav1.TypeMeta
		if yaml.Unmarshal([]byte(cm.Data[key]), &meta) == nil && meta.Kind == egressKind {
			s.egresses = append(s.egresses, egressFile{fmt.Sprintf("%s ConfigMap/%s %s", path, cm.Name, key), key,
				[]byte(cm.Data[key])})
		}
	}
}
