// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/emicklei/go-restful/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"example.com/extension-apiserver/internal/queryoptions"
)

// validateOpenAPI returns an error for each kind without a definition, and for each missing
// definition to which the definition of a kind refers.
func (a API) validateOpenAPI(scheme *runtime.Scheme) []error {
	if a.OpenAPI == nil {
		return nil // NewScheme reports it
	}
	definitions := a.openAPI(func(string) spec.Ref { return spec.Ref{} })
	var problems []error
	var reached []string
	for _, g := range a.Groups {
		for _, gv := range scheme.PrioritizedVersionsForGroup(g.Name) {
			types := scheme.KnownTypes(gv)
			for _, kind := range slices.Sorted(maps.Keys(types)) {
				if types[kind].PkgPath() == reflect.TypeFor[metav1.ListOptions]().PkgPath() {
					continue // the options of requests
				}
				name := openapiutil.GetCanonicalTypeName(reflect.New(types[kind]).Interface())
				if _, ok := definitions[name]; !ok {
					problems = append(problems, fmt.Errorf("OpenAPI has no definition %s for %s in %s", name, kind,
						gv))
				} else if !slices.Contains(reached, name) {
					reached = append(reached, name)
				}
			}
		}
	}
	for i := 0; i < len(reached); i++ {
		for _, name := range definitions[reached[i]].Dependencies {
			if slices.Contains(reached, name) {
				continue
			}
			reached = append(reached, name)
			if _, ok := definitions[name]; !ok {
				problems = append(problems, fmt.Errorf("OpenAPI has no definition %s, which %s references", name,
					reached[i]))
			}
		}
	}
	return problems
}

// servedKinds returns a namer that omits internal versions from the group, version and kind of a
// definition. A Go type that is registered as internal and in a served version has both, and
// clients fail on a version that is not served.
func servedKinds(definitionName func(string) (string, spec.Extensions)) func(string) (string, spec.Extensions) {
	return func(name string) (string, spec.Extensions) {
		const gvks = "x-kubernetes-group-version-kind"
		name, extensions := definitionName(name)
		if kinds, ok := extensions[gvks].([]any); ok {
			extensions[gvks] = slices.DeleteFunc(slices.Clone(kinds), func(kind any) bool {
				fields, ok := kind.(map[string]any)
				return ok && fields["version"] == runtime.APIVersionInternal
			})
		}
		return name, extensions
	}
}

// describeParameters sets the types and descriptions of the query parameters of subresources,
// such as those of a log, from the fields of their options. The library omits times, takes
// descriptions from the method SwaggerDoc, which generated types do not have, and stops the
// process for a parameter of a named type.
func (a API) describeParameters(scheme *runtime.Scheme, services []*restful.WebService,
	groups []*genericapiserver.APIGroupInfo) {
	definitions := a.openAPI(func(string) spec.Ref { return spec.Ref{} })
	for _, group := range groups {
		for version, storages := range group.VersionedResourcesStorageMap {
			gv := schema.GroupVersion{Group: group.PrioritizedVersions[0].Group, Version: version}
			for path, storage := range storages {
				options := queryoptions.Of(storage)
				if options == nil {
					continue
				}
				options, err := queryoptions.InVersion(scheme, options, gv)
				if err != nil {
					continue // the registry has registered all versions
				}
				fields := definitions[openapiutil.GetCanonicalTypeName(options)].Schema.Properties
				resource, subresource, _ := strings.Cut(path, "/")
				suffix := strings.TrimSuffix("/"+resource+"/{name}/"+subresource, "/")
				_, connects := storage.(rest.Connecter)
				for _, route := range routesOf(services, "/apis/"+gv.String(), suffix) {
					if !connects && route.Method != http.MethodGet {
						continue
					}
					for _, p := range queryoptions.Parameters(options) {
						parameterOf(route, p.Name).DataType(p.Type).Description(fields[p.Name].Description)
					}
				}
			}
		}
	}
}

// routesOf returns the routes below root with the suffix, except the deprecated routes for
// watches.
func routesOf(services []*restful.WebService, root, suffix string) []*restful.Route {
	var found []*restful.Route
	for _, service := range services {
		if service.RootPath() != root {
			continue
		}
		routes := service.Routes() // not a copy, unless the service is dynamic
		for i := range routes {
			if strings.HasSuffix(routes[i].Path, suffix) && !strings.HasPrefix(routes[i].Path, root+"/watch/") {
				found = append(found, &routes[i])
			}
		}
	}
	return found
}

// parameterOf returns the query parameter of a route. It adds the parameter if it does not exist.
func parameterOf(route *restful.Route, name string) *restful.Parameter {
	for _, p := range route.ParameterDocs {
		if p.Kind() == restful.QueryParameterKind && p.Data().Name == name {
			return p
		}
	}
	p := restful.QueryParameter(name, "")
	route.ParameterDocs = append(route.ParameterDocs, p)
	return p
}
