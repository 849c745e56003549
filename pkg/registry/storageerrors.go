// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StatusReasonInsufficientStorage is the reason of status 507: the etcd database has no space
// left. Reads and deletions are still served.
const StatusReasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"

// storageError is an error of etcd's client with the status for the client of the server. It
// wraps the original error, because the library inspects it: the library stores an object that is
// too large without its managed fields.
type storageError struct {
	error
	code   codes.Code
	status metav1.Status
}

func (e *storageError) Unwrap() error                  { return e.error }
func (e *storageError) Status() metav1.Status          { return e.status }
func (e *storageError) Code() codes.Code               { return e.code }
func (e *storageError) GRPCStatus() *grpcstatus.Status { return grpcstatus.New(e.code, e.Error()) }

// withStatus adds a status to an error of etcd's client, to which the library responds with 500
// and no reason. write is true for writes, which etcd may have performed although it sent no
// response.
func withStatus(err error, write bool) error {
	code := etcdCode(err)
	if status := apierrors.APIStatus(nil); code == codes.OK || errors.As(err, &status) {
		return err
	}
	var status *apierrors.StatusError
	switch message := err.Error(); {
	case strings.Contains(message, "request is too large"),
		strings.Contains(message, "trying to send message larger than max"):
		status = apierrors.NewRequestEntityTooLargeError("etcd does not store an object of this size: " + message)
	case strings.Contains(message, "database space exceeded"):
		status = &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: StatusReasonInsufficientStorage,
			Message: "etcd has no space for writes, except deletions: " + message,
		}}
	case code == codes.ResourceExhausted:
		status = apierrors.NewTooManyRequests("etcd has too many requests: "+message, 1)
	case code != codes.Unavailable && code != codes.DeadlineExceeded && code != codes.Canceled:
		status = apierrors.NewInternalError(err)
	case write:
		status = apierrors.NewTimeoutError("the write was not confirmed and may have been done: "+message, 0)
	default:
		status = apierrors.NewServiceUnavailable("etcd did not respond: " + message)
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	return &storageError{err, code, status.ErrStatus}
}

// etcdCode returns the gRPC code of an error of etcd's client, or OK for any other error.
func etcdCode(err error) codes.Code {
	var known interface{ Code() codes.Code } // rpctypes.EtcdError
	var other interface{ GRPCStatus() *grpcstatus.Status }
	switch {
	case err == nil:
		return codes.OK
	case errors.As(err, &known):
		return known.Code()
	case errors.As(err, &other):
		return other.GRPCStatus().Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return codes.OK
}
