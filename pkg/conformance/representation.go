// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"mime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Media types of objects.
const (
	asTable           = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata        = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asMetadataList    = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	protobufType      = "application/vnd.kubernetes.protobuf"
	cborType          = "application/cbor"
	protobufSignature = "k8s\x00"
)

// mediaType fails the check unless a response has the media type.
func (s *session) mediaType(a *response, want string) {
	if got, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type")); got != want {
		s.errorf("%s: the Content-Type is %q, want %s", a.request, a.Header.Get("Content-Type"), want)
	}
}

// table decodes a Table.
func (s *session) table(a *response) (columns []string, rows []any) {
	obj := s.want(a, 200).object()
	if obj.GetKind() != "Table" || obj.GetAPIVersion() != "meta.k8s.io/v1" {
		s.fatalf("%s: got %s %s, want meta.k8s.io/v1 Table", a.request, obj.GetAPIVersion(), obj.GetKind())
	}
	definitions, _, _ := unstructured.NestedSlice(obj.Object, "columnDefinitions")
	for _, d := range definitions {
		if column, ok := d.(map[string]any); ok {
			name, _ := column["name"].(string)
			columns = append(columns, name)
		}
	}
	rows, _, _ = unstructured.NestedSlice(obj.Object, "rows")
	return columns, rows
}

var representationChecks = []Check{
	{"representations/json", Required, concepts, "Without an Accept header, and for */*, the response is JSON.",
		[]need{verbs("create", "get")}, func(s *session) {
			obj := s.create()
			for _, types := range []string{"", "*/*"} {
				a := s.want(s.do("GET", s.path(obj), accept(types)), 200)
				s.mediaType(a, "application/json")
				a.object()
			}
		}},
	{"representations/yaml", Required, concepts,
		"The response is YAML if the client requests YAML.", []need{verbs("create", "get")},
		func(s *session) {
			obj := s.create()
			a := s.want(s.do("GET", s.path(obj), accept("application/yaml")), 200)
			s.mediaType(a, "application/yaml")
			got := map[string]any{}
			if err := yaml.Unmarshal(a.Body, &got); err != nil ||
				(&unstructured.Unstructured{Object: got}).GetName() != obj.GetName() {
				s.errorf("the body is not the object as YAML (%v): %.300q", err, a.Body)
			}
		}},
	{"representations/yaml-body", Required, concepts,
		"A YAML body is accepted.", []need{verbs("create")}, func(s *session) {
			data, err := yaml.Marshal(s.object().Object)
			if err != nil {
				s.fatalf("marshal the sample: %v", err)
			}
			s.created(s.want(s.do("POST", s.collection(), text("application/yaml", string(data))), 201))
		}},
	{"representations/protobuf", Optional, concepts,
		"The response is protobuf if the client requests protobuf.", []need{verbs("create", "get")},
		func(s *session) {
			obj := s.create()
			a := s.want(s.do("GET", s.path(obj), accept(protobufType)), 200)
			s.mediaType(a, protobufType)
			if !bytes.HasPrefix(a.Body, []byte(protobufSignature)) || !bytes.Contains(a.Body, []byte(obj.GetName())) {
				s.errorf("the body is not the object as protobuf: %.100q", a.Body)
			}
		}},
	{"representations/protobuf-body", Optional, concepts,
		"A protobuf body is accepted.", []need{verbs("create", "get")}, func(s *session) {
			// Writing the unmodified object back changes nothing.
			obj := s.create()
			read := s.want(s.do("GET", s.path(obj), accept(protobufType)), 200, 406)
			if read.Code == 406 {
				s.fatalf("protobuf is not supported: %s", read)
			}
			a := s.want(s.do("PUT", s.path(obj), text(protobufType, string(read.Body))), 200, 409)
			if a.Code == 200 && a.object().GetUID() != obj.GetUID() {
				s.errorf("got uid %s, want %s", a.object().GetUID(), obj.GetUID())
			}
		}},
	{"representations/protobuf-list", Optional, concepts,
		"Lists can be requested as protobuf.", []need{verbs("create", "list")},
		func(s *session) {
			name := s.create().GetName()
			a := s.want(s.list(accept(protobufType)), 200)
			s.mediaType(a, protobufType)
			if !bytes.Contains(a.Body, []byte(name)) {
				s.errorf("the list does not have the object: %.200q", a.Body)
			}
		}},
	{"representations/fallback", Required, concepts,
		"The response has the first media type of the Accept header that the server supports.",
		[]need{verbs("create", "get")}, func(s *session) {
			a := s.want(s.do("GET", s.path(s.create()), accept(
				"application/unknown, application/yaml, application/json")),
				200)
			s.mediaType(a, "application/yaml")
		}},
	{"representations/fallback-protobuf", Required, concepts,
		"A client that prefers protobuf and accepts JSON gets a response.",
		[]need{verbs("create", "get")}, func(s *session) {
			s.want(s.do("GET", s.path(s.create()), accept(protobufType+",application/json")), 200)
		}},
	{"representations/not-acceptable", Required, concepts,
		"An unsupported media type in the Accept header is rejected with 406.",
		[]need{verbs("create", "get")}, func(s *session) {
			s.want(s.do("GET", s.path(s.create()), accept("application/unknown")), 406)
		}},
	{"representations/unsupported-body", Required, concepts,
		"A body with an unsupported media type is rejected with 415.", []need{verbs("create")},
		func(s *session) {
			s.expectRefused(s.do("POST", s.collection(), text("application/unknown", "{}")), 415)
		}},
	{"representations/cbor", Optional, kep("4222-cbor-serializer"), "The response is CBOR if the client requests CBOR.",
		[]need{verbs("create", "get")}, func(s *session) {
			a := s.want(s.do("GET", s.path(s.create()), accept(cborType)), 200)
			s.mediaType(a, cborType)
			if !bytes.HasPrefix(a.Body, []byte{0xd9, 0xd9, 0xf7}) {
				s.errorf("the body begins with % x, want d9 d9 f7", a.Body[:min(3, len(a.Body))])
			}
		}},
	{"representations/gzip", Recommended, kep("156-api-response-compression"),
		"A large list is compressed for a client that accepts gzip, with the same content.",
		[]need{verbs("create", "list")},
		func(s *session) {
			for range 4 {
				s.create(func(obj *unstructured.Unstructured) {
					// 64 KiB each; responses of 128 KiB and more are compressed
					obj.SetAnnotations(map[string]string{"large": strings.Repeat("abcdefgh", 8<<10)})
				})
			}
			plain := s.want(s.list(header("Accept-Encoding", "identity")), 200)
			a := s.want(s.list(header("Accept-Encoding", "gzip")), 200)
			if a.Header.Get("Content-Encoding") != "gzip" || plain.Header.Get("Content-Encoding") != "" {
				s.fatalf("the Content-Encoding is %q, and %q for a client that accepts none",
					a.Header.Get("Content-Encoding"), plain.Header.Get("Content-Encoding"))
			}
			reader, err := gzip.NewReader(bytes.NewReader(a.Body))
			if err != nil {
				s.fatalf("the body is not compressed: %v", err)
			}
			data, err := io.ReadAll(io.LimitReader(reader, maxResponse))
			list := struct{ Items []json.RawMessage }{}
			if err == nil {
				err = json.Unmarshal(data, &list)
			}
			if err != nil || len(list.Items) != 4 || len(a.Body) >= len(plain.Body) {
				s.errorf("got %d items in %d bytes (%v), want 4 in fewer than %d", len(list.Items), len(a.Body), err,
					len(plain.Body))
			}
		}},
	{"representations/table", Required, concepts,
		"A list as Table has columns, one of them the name, and a row with the metadata of each object.",
		[]need{verbs("create", "list")}, func(s *session) {
			obj := s.create()
			columns, rows := s.table(s.list(accept(asTable)))
			if len(columns) == 0 || len(rows) != 1 {
				s.fatalf("got the columns %q and %d rows, want columns and one row", columns, len(rows))
			}
			row := &unstructured.Unstructured{Object: rows[0].(map[string]any)}
			cells, _, _ := unstructured.NestedSlice(row.Object, "cells")
			metadata, _, _ := unstructured.NestedMap(row.Object, "object")
			if n := slices.Index(columns, "Name"); n < 0 || len(cells) != len(columns) || cells[n] != obj.GetName() {
				s.errorf("got the cells %v for the columns %q, want the name among them", cells, columns)
			}
			if part := (&unstructured.Unstructured{Object: metadata}); part.GetKind() != "PartialObjectMetadata" ||
				part.GetUID() != obj.GetUID() {
				s.errorf("the object of the row is %v, want the metadata", metadata)
			}
		}},
	{"representations/table-of-one", Required, concepts, "An object as Table has one row.", []need{verbs("create", "get")},
		func(s *session) {
			if _, rows := s.table(s.do("GET", s.path(s.create()), accept(asTable))); len(rows) != 1 {
				s.errorf("got %d rows, want 1", len(rows))
			}
		}},
	{"representations/table-objects", Required, concepts,
		"includeObject=Object adds whole objects to the rows, and None adds nothing.",
		[]need{verbs("create", "list")}, func(s *session) {
			obj := s.create()
			for include, kind := range map[string]string{"Object": s.kind(), "None": ""} {
				_, rows := s.table(s.list(accept(asTable), query("includeObject", include)))
				if len(rows) != 1 {
					s.fatalf("got %d rows, want 1", len(rows))
				}
				whole, _, _ := unstructured.NestedMap(rows[0].(map[string]any), "object")
				if got := (&unstructured.Unstructured{Object: whole}); whole == nil && kind != "" || whole != nil &&
					(got.GetKind() != kind || got.GetUID() != obj.GetUID()) {
					s.errorf("includeObject=%s: the object of the row is %v", include, whole)
				}
			}
		}},
	{"representations/table-watch", Required, concepts, "A watch as Table has a Table in each event.",
		[]need{verbs("create", "watch")}, func(s *session) {
			obj := s.create()
			e := s.watchOwn("", accept(asTable)).next()
			rows, _, _ := unstructured.NestedSlice(e.Object, "rows")
			if e.Type != "ADDED" || e.object().GetKind() != "Table" || len(rows) != 1 {
				s.errorf("got %s with %v, want ADDED with a Table of %s", e.Type, e.Object, obj.GetName())
			}
		}},
	{"representations/metadata", Required, concepts, "An object as PartialObjectMetadata has only its metadata.",
		[]need{verbs("create", "get")}, func(s *session) {
			obj := s.create()
			got := s.want(s.do("GET", s.path(obj), accept(asMetadata)), 200).object()
			if got.GetKind() != "PartialObjectMetadata" || got.GetAPIVersion() != "meta.k8s.io/v1" ||
				got.GetUID() != obj.GetUID() || len(content(got)) > 0 {
				s.errorf("got %v, want the metadata alone", got.Object)
			}
		}},
	{"representations/metadata-list", Required, concepts, "A list as PartialObjectMetadataList has only the metadata.",
		[]need{verbs("create", "list")}, func(s *session) {
			obj := s.create()
			a := s.want(s.list(accept(asMetadataList)), 200)
			items := a.items()
			if a.object().GetKind() != "PartialObjectMetadataList" || len(items) != 1 ||
				items[0].GetUID() != obj.GetUID() || len(content(&items[0])) > 0 {
				s.errorf("got %.500q, want a list of the metadata of %s", a.Body, obj.GetName())
			}
		}},
	{"representations/metadata-watch", Required, concepts, "A watch as PartialObjectMetadata has only the metadata.",
		[]need{verbs("create", "watch")}, func(s *session) {
			obj := s.create()
			e := s.watchOwn("", accept(asMetadata)).expect("ADDED", obj.GetName())
			if got := e.object(); got.GetKind() != "PartialObjectMetadata" || len(content(got)) > 0 {
				s.errorf("got %v, want the metadata alone", e.Object)
			}
		}},
	{"representations/metadata-watch-list", Required, kep(watchListing),
		"A streaming list as PartialObjectMetadata ends with the annotated bookmark.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			name := s.create().GetName()
			got, bookmark := s.untilEnd(s.watchOwn("", append(streamed(), accept(asMetadata))...))
			if len(got) != 1 || got[0] != name || bookmark.GetKind() != "PartialObjectMetadata" {
				s.errorf("got %q and a bookmark of the kind %s, want %s and PartialObjectMetadata", got,
					bookmark.GetKind(), name)
			}
		}},
	{"representations/unknown-table", Recommended, concepts, "A Table of an unknown version is rejected with 406.",
		[]need{verbs("create", "get")}, func(s *session) {
			s.want(s.do("GET", s.path(s.create()), accept("application/json;as=Table;v=v9;g=meta.k8s.io")), 406)
		}},
	{"representations/error-json", Required, concepts,
		"An error is a Status in JSON, with this content type.", []need{verbs("get")},
		func(s *session) {
			a := s.do("GET", s.path(s.object()))
			s.expectRefused(a, 404)
			s.mediaType(a, "application/json")
		}},
	{"representations/error-yaml", Recommended, concepts, "An error has the requested media type.", []need{verbs("get")},
		func(s *session) {
			a := s.want(s.do("GET", s.path(s.object()), accept("application/yaml")), 404)
			s.mediaType(a, "application/yaml")
		}},
	{"representations/error-as-table", Required, concepts, "An error is a Status if the client requests a Table.",
		[]need{verbs("get")}, func(s *session) {
			s.expectRefused(s.do("GET", s.path(s.object()), accept(asTable+",application/json")), 404)
		}},
	{"representations/pretty", Optional, concepts,
		"pretty=true indents JSON.", []need{verbs("create", "get")}, func(s *session) {
			if a := s.want(s.do("GET", s.path(s.create()), query("pretty", "true")), 200); !bytes.Contains(a.Body,
				[]byte("\n  \"")) {
				s.errorf("the body is not indented: %.200q", a.Body)
			}
		}},
}
