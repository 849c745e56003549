// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

const egressKind = "EgressSelectorConfiguration"

// decoder is strict: a misspelt field would be a setting that is not there.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two types under one name, whatever the input
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// decode adds what is in a file. Kinds that are neither Kubernetes' nor kube-aggregator's are none of our business.
func (s *set) decode(path string, data []byte) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			s.unread = append(s.unread, unread{path, err})
			return
		}
		s.decodeDocument(path, doc)
	}
}

func (s *set) decodeDocument(path string, doc []byte) {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &meta); err != nil {
		s.unread = append(s.unread, unread{path, err})
		return
	}
	switch meta.Kind {
	case "": // comments alone, or patches of kustomize
		return
	case egressKind:
		s.egresses = append(s.egresses, egressFile{path, filepath.Base(path), doc})
		return
	case "List":
		s.decodeList(path, doc)
		return
	}
	value, _, err := decoder.Decode(doc, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return
	}
	if err != nil {
		s.unread = append(s.unread, unread{path, fmt.Errorf("%s: %w", meta.Kind, err)})
		return
	}
	s.objects = append(s.objects, object{path, value})
	if cm, ok := value.(*corev1.ConfigMap); ok {
		s.decodeConfigMap(path, cm)
	}
}

// decodeList takes the items of kubectl get -o yaml apart.
func (s *set) decodeList(path string, doc []byte) {
	var list struct {
		Items []runtime.RawExtension `json:"items"`
	}
	if err := yaml.Unmarshal(doc, &list); err != nil {
		s.unread = append(s.unread, unread{path, err})
		return
	}
	for _, item := range list.Items {
		s.decodeDocument(path, item.Raw)
	}
}

// decodeConfigMap finds configurations that a kube-apiserver in a pod has from a ConfigMap.
func (s *set) decodeConfigMap(path string, cm *corev1.ConfigMap) {
	var keys []string
	for key := range cm.Data {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		var meta metav1.TypeMeta
		if yaml.Unmarshal([]byte(cm.Data[key]), &meta) == nil && meta.Kind == egressKind {
			s.egresses = append(s.egresses, egressFile{fmt.Sprintf("%s ConfigMap/%s %s", path, cm.Name, key), key, []byte(cm.Data[key])})
		}
	}
}
