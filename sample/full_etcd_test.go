// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestFullEtcd checks that the storage rejects an object that is too large with 413, and every
// create with 507 when etcd has no space. Reads and deletions still work, and deletions free
// space.
func TestFullEtcd(t *testing.T) {
	const quota = 16 << 20
	gadgets := newStorage(t, quota)["gadgets"]
	ctx := requestOf(t.Context(), "gadgets", "")
	create := func(name string, owners int) error {
		gadget := &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.GadgetSpec{Purpose: "p", Precision: new(int32(2))}}
		for i := range owners {
			gadget.OwnerReferences = append(gadget.OwnerReferences, metav1.OwnerReference{
				APIVersion: "v1", Kind: "Node", Name: strings.Repeat("x", 60), UID: types.UID(fmt.Sprint(i)),
			})
		}
		_, err := gadgets.(rest.Creater).Create(ctx, gadget, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		return err
	}
	status := func(err error) (int32, metav1.StatusReason) {
		var api apierrors.APIStatus
		if !errors.As(err, &api) {
			t.Fatalf("got %v, want a status", err)
		}
		return api.Status().Code, api.Status().Reason
	}
	if code, reason := status(create("too-large", 30_000)); code != http.StatusRequestEntityTooLarge ||
		reason != metav1.StatusReasonRequestEntityTooLarge {
		t.Errorf("create an object of 2 MB: %d %s, want 413", code, reason)
	}
	var err error
	for i := 0; err == nil; i++ {
		if i == 100 {
			t.Fatalf("100 objects of 1 MB are stored in %d bytes", quota)
		}
		err = create(fmt.Sprintf("g-%d", i), 13_000)
	}
	if code, reason := status(err); code != http.StatusInsufficientStorage ||
		reason != registry.StatusReasonInsufficientStorage {
		t.Errorf("create in a full etcd: %v: %d %s, want 507", err, code, reason)
	}
	if _, err := gadgets.(rest.Getter).Get(ctx, "g-0", &metav1.GetOptions{}); err != nil {
		t.Errorf("get from a full etcd: %v", err)
	}
	if _, deleted, err := gadgets.(rest.GracefulDeleter).Delete(ctx, "g-0", rest.ValidateAllObjectFunc,
		&metav1.DeleteOptions{}); err != nil || !deleted {
		t.Errorf("delete in a full etcd: deleted %t, %v", deleted, err)
	}
}
