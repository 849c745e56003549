// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	kjson "sigs.k8s.io/json"

	"example.com/extension-apiserver/internal/patch"
)

// Patches knows the Go type that each kind of patch request changes. It is set once, before the
// server serves requests.
type Patches struct {
	kinds map[patched]kind
	// streams contains the resources whose handlers read the body themselves.
	streams map[patched]bool
	// schemas checks apply configurations as the field manager does.
	schemas managedfields.TypeConverter
}

// patched identifies a resource or a subresource in a version.
type patched struct {
	schema.GroupVersion
	path string // "widgets", "widgets/status"
}

func patchedBy(info *genericapirequest.RequestInfo) patched {
	p := patched{schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, info.Resource}
	if info.Subresource != "" {
		p.path += "/" + info.Subresource
	}
	return p
}

type kind struct {
	schema.GroupVersionKind
	typ reflect.Type
}

// NewPatches returns the Patches of the groups, which must already be installed.
func NewPatches(scheme *runtime.Scheme, groups []*genericapiserver.APIGroupInfo) (Patches, error) {
	p := Patches{kinds: map[patched]kind{}, streams: map[patched]bool{}}
	for _, group := range groups {
		for _, gv := range group.PrioritizedVersions {
			for path, storage := range group.VersionedResourcesStorageMap[gv.Version] {
				if _, ok := storage.(rest.Connecter); ok {
					p.streams[patched{gv, path}] = true
				}
				if _, ok := storage.(rest.Patcher); !ok {
					continue
				}
				gvk, err := endpoints.GetResourceKind(gv, storage, scheme)
				if err != nil {
					return p, fmt.Errorf("find the kind of %s in %s: %w", path, gv, err)
				}
				object, err := scheme.New(gvk)
				if err != nil {
					return p, fmt.Errorf("find the type of %s in %s: %w", path, gv, err)
				}
				p.kinds[patched{gv, path}] = kind{gvk, reflect.TypeOf(object).Elem()}
			}
		}
	}
	// The library has installed all groups with the same document.
	schemas, err := managedfields.NewTypeConverter(groups[0].StaticOpenAPISpec, false)
	if err != nil {
		return p, fmt.Errorf("read the schemas of the kinds: %w", err)
	}
	p.schemas = schemas
	return p, nil
}

// Streams reports whether the handler of a request reads its body itself.
func (p *Patches) Streams(info *genericapirequest.RequestInfo) bool {
	return p.streams[patchedBy(info)]
}

// WithCheck rejects patches to which the library would respond with a panic or 500, or which it
// would store with a different number. Strategic merge patches and apply configurations whose
// content does not match the type get 422 or 400. JSON patches that move too many elements get
// 413. Patches that cannot be merged into the object get 422. WithCheck must follow authorization.
// It decodes bodies of up to limit bytes as the library does; the handler rejects longer bodies.
func (p *Patches) WithCheck(handler http.Handler, limit int64, serializer runtime.NegotiatedSerializer) http.Handler {
	if limit <= 0 { // which the handler treats as no limit
		limit = math.MaxInt64 - 1
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		check, kind := p.checkOf(req)
		switch {
		case kind.Empty():
			handler.ServeHTTP(w, req)
			return
		case check == nil, req.ContentLength > limit:
			serveMerge(handler, w, req, kind, serializer)
			return
		}
		body, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
		if err != nil {
			err = apierrors.NewBadRequest(fmt.Sprintf("read the body: %v", err))
		} else if size := int64(len(body)); size <= limit {
			var cost patch.Cost
			cost, err = check(body)
			req = req.WithContext(patch.WithCost(req.Context(), cost))
		}
		if err != nil {
			responsewriters.RespondWithError(w, req, err, serializer)
			return
		}
		req.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), req.Body))
		serveMerge(handler, w, req, kind, serializer)
	})
}

// checkOf returns the check of the request's body, or nil if it needs none, and the kind that the
// request patches, which is empty if it patches none.
func (p *Patches) checkOf(req *http.Request) (check func(body []byte) (patch.Cost, error), gk schema.GroupKind) {
	info, ok := genericapirequest.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Verb != "patch" {
		return nil, gk
	}
	of, ok := p.kinds[patchedBy(info)]
	if !ok {
		return nil, gk
	}
	gk = of.GroupKind()
	invalid := func(errs field.ErrorList) error {
		if len(errs) == 0 {
			return nil
		}
		return apierrors.NewInvalid(gk, info.Name, errs)
	}
	// The handler determines the type of a patch in the same way.
	contentType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	switch types.PatchType(contentType) {
	case types.JSONPatchType:
		return patch.JSON, gk
	case types.StrategicMergePatchType:
		return func(body []byte) (patch.Cost, error) {
			var content map[string]any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &content); err != nil {
				return patch.Cost{}, nil
			}
			cost, errs := patch.Strategic(content, body, of.typ)
			return cost, invalid(errs)
		}, gk
	case types.ApplyYAMLPatchType:
		return func(body []byte) (cost patch.Cost, err error) {
			var content map[string]any
			if err := utilyaml.Unmarshal(body, &content); err != nil {
				return cost, nil
			}
			if err := stringKeys(body); err != nil {
				return cost, err
			}
			return cost, p.checkApply(content, body, of, invalid)
		}, gk
	case types.ApplyCBORPatchType:
		return func(body []byte) (cost patch.Cost, err error) {
			var content map[string]any
			if err := direct.Unmarshal(body, &content); err != nil {
				return cost, nil
			}
			return cost, p.checkApply(content, nil, of, invalid)
		}, gk
	}
	return nil, gk
}

// checkApply checks an apply configuration. The handler rejects a configuration of another kind.
func (p *Patches) checkApply(content map[string]any, body []byte, of kind, invalid func(field.ErrorList) error) error {
	object := &unstructured.Unstructured{Object: content}
	if object.GroupVersionKind() != of.GroupVersionKind {
		return nil
	}
	if err := invalid(patch.Apply(content, body, of.typ)); err != nil {
		return err
	}
	if err := p.FitsSchema(content); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the apply configuration does not match the schema of %s: %v",
			of.Kind, err))
	}
	return nil
}

// FitsSchema returns an error if an object of a served version does not match its schema, for
// example because it has duplicates. It shortens long strings in content.
func (p *Patches) FitsSchema(content map[string]any) error {
	// Each error contains its whole path, including the keys.
	object := &unstructured.Unstructured{Object: patch.ShortTexts(content).(map[string]any)}
	if _, err := p.schemas.ObjectToTyped(object); err != nil {
		return errors.New(patch.Message(err.Error()))
	}
	return nil
}

// stringKeys rejects YAML with a key that is not a string. The decoder converts such keys to
// strings, and the one of 1 and "1" that takes effect differs between decodings. The handler could
// then read a value that was not checked.
func stringKeys(body []byte) error {
	if json.Valid(body) {
		return nil
	}
	var document any
	if err := yaml.Unmarshal(body, &document); err != nil {
		return nil
	}
	values := []any{document}
	for len(values) > 0 {
		value := values[len(values)-1]
		values = values[:len(values)-1]
		switch value := value.(type) {
		case map[any]any:
			for key, v := range value {
				if _, ok := key.(string); !ok {
					return apierrors.NewBadRequest(fmt.Sprintf("the key %v is not a string; quote it", key))
				}
				values = append(values, v)
			}
		case []any:
			values = append(values, value...)
		}
	}
	return nil
}
