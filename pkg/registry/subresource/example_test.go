// SPDX-License-Identifier: Apache-2.0

package subresource_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/registry/subresource"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// A WebSocket begins with a GET, which is authorized as get. Opening the session requires
// permission to create the subresource.
func ExampleEnsureAuthorized() {
	readOnly := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision,
		string, error) {
		if a.IsReadOnly() {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	ctx := genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: "jane"})
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIGroup: "workshop.example.com", APIVersion: "v1", Resource: "gadgets",
		Subresource: "console", Name: "ruler",
	})
	fmt.Println(subresource.EnsureAuthorized(ctx, readOnly, "create", "console"))
	// Output: gadgets.workshop.example.com "ruler" is forbidden: User "jane" cannot create resource "gadgets/console" in API group "workshop.example.com" at the cluster scope
}

// A kind with a subresource that repeats each line in upper case. NewStorage returns both
// resources. The session can be tested without a WebSocket.
func ExampleNewStream() {
	shout := func(ctx context.Context, name string, in io.Reader, out, _ io.Writer) error {
		// A Scanner rejects lines of more than 64 KiB.
		lines := bufio.NewScanner(in)
		for ctx.Err() == nil && lines.Scan() {
			if _, err := fmt.Fprintf(out, "%s: %s!\n", name, strings.ToUpper(lines.Text())); err != nil {
				return err
			}
		}
		return lines.Err()
	}
	newStorage := func(store *genericregistry.Store, a authorizer.Authorizer) map[string]rest.Storage {
		return map[string]rest.Storage{
			"gadgets":       store,
			"gadgets/shout": subresource.NewStream(store, a, "shout", shout),
		}
	}
	var a authorizer.Authorizer // the server's authorizer
	storage := newStorage(&genericregistry.Store{NewFunc: func() runtime.Object { return &v1.Gadget{} }}, a)
	fmt.Printf("%T\n", storage["gadgets/shout"].New())

	if err := shout(context.Background(), "ruler", strings.NewReader("good morning\n"), os.Stdout,
		os.Stderr); err != nil {
		fmt.Println(err)
	}
	// Output:
	// *v1.Gadget
	// ruler: GOOD MORNING!
}
