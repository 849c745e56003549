// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
)

// form is a form that objects have on the wire.
type form struct {
	name, mediaType string
	// begins is how each object in this form begins.
	begins string
	// stream is the Content-Type of a watch; empty if there is no watch in this form.
	stream string
}

var forms = []form{
	{"JSON", runtime.ContentTypeJSON, "{", runtime.ContentTypeJSON},
	{"YAML", runtime.ContentTypeYAML, "apiVersion: ", ""},
	{"protobuf", runtime.ContentTypeProtobuf, "k8s\x00", runtime.ContentTypeProtobuf + ";stream=watch"},
}

func (f form) info(t *testing.T) runtime.SerializerInfo {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), f.mediaType)
	if !ok {
		t.Fatalf("no codec for %s", f.mediaType)
	}
	return info
}

// accept asks for answers in this form, as something else than what the resource is if as says so.
func (f form) accept(as string) http.Header { return http.Header{"Accept": {f.mediaType + as}} }

func (f form) encode(t *testing.T, obj runtime.Object) []byte {
	t.Helper()
	data, err := runtime.Encode(f.info(t).Serializer, obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// decode reads the object of an answer that must be in this form. What it returns is equal for equal objects, whatever
// the form.
func (f form) decode(t *testing.T, a answer) map[string]any {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != f.mediaType || !bytes.HasPrefix(a.body, []byte(f.begins)) {
		t.Fatalf("got %s that begins with %.20q, want %s that begins with %q", got, a.body, f.mediaType, f.begins)
	}
	obj, _, err := f.info(t).Serializer.Decode(a.body, nil, nil)
	if err != nil {
		t.Fatalf("decode %s: %v\n%q", f.name, err, a.body)
	}
	return contentOf(t, obj)
}

func contentOf(t *testing.T, obj runtime.Object) map[string]any {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// rawWatch is a watch that is read as it comes.
type rawWatch struct {
	events chan formEvent
	failed chan error
}

type formEvent struct {
	kind   watch.EventType
	object runtime.Object
}

// watch opens a watch in this form.
func (f form) watch(t *testing.T, server endpoint, path, as string) rawWatch {
	t.Helper()
	resp := server.open(t, http.MethodGet, path, f.accept(as), nil)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != f.stream {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("watch %s: %d %s %s, want 200 and %s", path, resp.StatusCode, got, body, f.stream)
	}
	info := f.info(t)
	frames := info.StreamSerializer.NewFrameReader(resp.Body)
	decoder := restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), info.Serializer)
	s := rawWatch{make(chan formEvent), make(chan error, 1)}
	go func() {
		for {
			kind, obj, err := decoder.Decode()
			if err != nil {
				s.failed <- err
				return
			}
			select {
			case s.events <- formEvent{kind, obj}:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return s
}

// next returns the next event, which must be of the kind. More bookmarks than those that are waited for may come.
func (s rawWatch) next(t *testing.T, want watch.EventType) map[string]any {
	t.Helper()
	select {
	case e := <-s.events:
		if e.kind == watch.Bookmark && want != watch.Bookmark {
			return s.next(t, want)
		}
		if e.kind != want {
			t.Fatalf("watch: %s %v, want %s", e.kind, e.object, want)
		}
		return contentOf(t, e.object)
	case err := <-s.failed:
		t.Fatalf("watch ended: %v; want %s", err, want)
	case <-time.After(patience):
		t.Fatalf("watch: nothing within %s, want %s", patience, want)
	}
	return nil
}
