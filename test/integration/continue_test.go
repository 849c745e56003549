// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// continueToken is what is in a token. Clients must not look into it, but an attacker does.
type continueToken struct {
	Version         string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	Start           string `json:"start"`
}

func (c continueToken) String() string {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func decodeContinue(t *testing.T, token string) continueToken {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(token)
	var c continueToken
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		t.Fatalf("decode continue token %q: %v", token, err)
	}
	return c
}

// TestEngineForeignContinue: a token says where to go on, not what one may read. With a token from another collection a
// list shows nothing but the collection that the request names, and that the caller is authorized for.
func TestEngineForeignContinue(t *testing.T) {
	t.Parallel()
	config := adminConfig(t, shared)
	namespace, other := newNamespace(t, shared), newNamespace(t, shared)
	r := newReader(t, shared)
	for _, k := range readKinds {
		for _, name := range []string{"a", "b", "c"} {
			k.create(t, k.client(t, config, namespace), namespace+name, nil)
			k.create(t, k.client(t, config, other), other+name, nil)
		}
	}
	for _, k := range readKinds {
		t.Run(k.resource.Resource, func(t *testing.T) {
			now := decodeContinue(t, r.get(t, k.path(namespace)+"?limit=1").list(t).GetContinue())
			for name, token := range map[string]string{
				"other namespace":    r.get(t, k.path(other)+"?limit=1").list(t).GetContinue(),
				"all namespaces":     r.get(t, k.path("")+"?limit=1").list(t).GetContinue(),
				"absolute":           continueToken{now.Version, now.ResourceVersion, "/" + other + "/" + other + "a\x00"}.String(),
				"sibling":            continueToken{now.Version, now.ResourceVersion, other + "/" + other + "a\x00"}.String(),
				"before everything":  continueToken{now.Version, now.ResourceVersion, "\x00"}.String(),
				"after everything":   continueToken{now.Version, now.ResourceVersion, "zzzz"}.String(),
				"no time":            continueToken{now.Version, -1, other + "\x00"}.String(),
				"another collection": continueToken{now.Version, -1, decodeContinue(t, r.get(t, readKinds[1].path("")+"?limit=1").list(t).GetContinue()).Start}.String(),
			} {
				for _, limit := range []string{"", "&limit=2"} {
					list := r.get(t, k.path(namespace)+"?continue="+token+limit).list(t)
					for _, obj := range list.Items {
						if obj.GetNamespace() != namespace || !strings.HasPrefix(obj.GetName(), namespace) || obj.GetKind() != k.kind {
							t.Errorf("token %q: got %s %s/%s, want objects of the namespace %s only", name, obj.GetKind(), obj.GetNamespace(), obj.GetName(), namespace)
						}
					}
				}
			}
			// The token of the same list goes on where it ended; this shows that the others did not fail for another reason.
			page := r.get(t, k.path(namespace)+"?continue="+now.String()).list(t)
			if diff := cmp.Diff([]string{namespace + "b", namespace + "c"}, objectNames(page.Items)); diff != "" {
				t.Errorf("own token (-want +got):\n%s", diff)
			}
		})
	}
	// A real token of another resource carries a resource version that means something else here: too new, forgotten, or by
	// chance one that there was.
	token := r.get(t, readKinds[1].path(namespace)+"?limit=1").list(t).GetContinue()
	switch a := r.get(t, readKinds[0].path(namespace)+"?continue="+token); a.code {
	case http.StatusOK:
		if list := a.list(t); list.GetKind() != "EngineList" || strings.Contains(string(a.body), "holderIdentity") {
			t.Errorf("token of leases: got %s, want engines only", a.body)
		}
	case http.StatusGone, http.StatusGatewayTimeout:
		a.status(t)
	default:
		t.Errorf("token of leases: got %d %s, want 200, 410 or 504", a.code, a.body)
	}
}
