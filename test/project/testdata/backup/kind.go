// Package backuprun describes the kind BackupRun.
package backuprun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/pkg/registry/subresource"

	v1 "git.example.org/platform/dbaas/apis/dbaas/v1"
)

// Kind defines how the server serves this kind. Everything that is not set is as in built-in
// kinds.
var Kind = registry.Kind[*v1.BackupRun]{
	Columns: []registry.Column[*v1.BackupRun]{
		{Name: "Instance", Value: func(r *v1.BackupRun) any { return r.Spec.Instance }},
		{Name: "Phase", Value: func(r *v1.BackupRun) any { return r.Status.Phase }},
	},
	PrepareForCreate: func(ctx context.Context, r *v1.BackupRun) {
		if of, err := instance(ctx, r); err == nil {
			r.OwnerReferences = append(r.OwnerReferences, metav1.OwnerReference{APIVersion: v1.SchemeGroupVersion.String(),
				Kind: "DatabaseInstance", Name: of.Name, UID: of.UID})
		}
	},
	// The Runtime can read objects that the caller cannot: a run reveals whether its database
	// exists, and its UID.
	Authorize: func(ctx context.Context, a authorizer.Authorizer, r, old *v1.BackupRun) error {
		if old != nil {
			return nil // the database of a run does not change
		}
		return subresource.Authorize(ctx, a, authorizer.AttributesRecord{Verb: "get", APIGroup: v1.SchemeGroupVersion.Group,
			APIVersion: v1.SchemeGroupVersion.Version, Resource: "databaseinstances", Namespace: r.Namespace, Name: r.Spec.Instance})
	},
	Validate: func(ctx context.Context, r, old *v1.BackupRun) field.ErrorList {
		if old != nil {
			return nil
		}
		path := field.NewPath("spec", "instance")
		switch of, err := instance(ctx, r); {
		case apierrors.IsNotFound(err):
			return field.ErrorList{field.NotFound(path, r.Spec.Instance)}
		case err != nil:
			return field.ErrorList{field.InternalError(path, err)}
		case of.UID != "" && (len(r.OwnerReferences) == 0 || r.OwnerReferences[len(r.OwnerReferences)-1].UID != of.UID):
			return field.ErrorList{field.InternalError(path, errors.New("it was replaced meanwhile, or could not be read"))}
		}
		return nil
	},
	Subresources: map[string]registry.Subresource[*v1.BackupRun]{
		"status": registry.Status[*v1.BackupRun]{},
		"cancel": registry.Action(cancel),
		"log":    registry.Log(writeLog),
	},
}

// instance returns the database of a run. It returns an empty object without a server, in unit
// tests of the validation.
func instance(ctx context.Context, r *v1.BackupRun) (*v1.DatabaseInstance, error) {
	server := apiserver.RuntimeFrom(ctx)
	if server == nil {
		return &v1.DatabaseInstance{}, nil
	}
	reader, err := server.Reader(v1.Resource("databaseinstances"))
	if err != nil {
		return nil, err
	}
	obj, err := reader.Get(ctx, r.Spec.Instance, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*v1.DatabaseInstance), nil
}

func cancel(_ context.Context, r *v1.BackupRun, by *v1.CancelBackupRun) (*v1.BackupRun, error) {
	if r.Status.Phase == "Cancelled" {
		return nil, apierrors.NewConflict(v1.Resource("backupruns"), r.Name, errors.New("it is cancelled already"))
	}
	r.Status.Phase, r.Status.Message = "Cancelled", by.Reason
	return r, nil
}

func writeLog(ctx context.Context, r *v1.BackupRun, o *v1.BackupRunLogOptions, w io.Writer) error {
	every := 5 * time.Second
	if o.EverySeconds != nil {
		if *o.EverySeconds < 1 {
			return apierrors.NewBadRequest("everySeconds must be at least 1")
		}
		every = time.Duration(*o.EverySeconds) * time.Second
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for line := 1; ; line++ {
		if _, err := fmt.Fprintf(w, "backup of %s: line %d\n", r.Spec.Instance, line); err != nil || !o.Follow {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
