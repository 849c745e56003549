// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"example.com/extension-apiserver/sample/apis/workshop"
)

// TestStorageErrors: each error of etcd's client has a status with a reason. Reads and writes
// have different statuses where a write may have been performed.
func TestStorageErrors(t *testing.T) {
	const internal = metav1.StatusReasonInternalError
	unavailable := []error{
		rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrStopped, rpctypes.ErrTimeout,
		rpctypes.ErrTimeoutDueToLeaderFail,
		rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex, rpctypes.ErrUnhealthy,
		rpctypes.ErrGRPCCanceled, rpctypes.ErrGRPCDeadlineExceeded, context.DeadlineExceeded, context.Canceled,
		grpcstatus.Error(codes.Unavailable, "connection refused"), fmt.Errorf("read: %w", rpctypes.ErrLeaderChanged),
	}
	failed := []error{
		rpctypes.ErrEmptyKey, rpctypes.ErrKeyNotFound, rpctypes.ErrValueProvided, rpctypes.ErrLeaseProvided,
		rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey,
		rpctypes.ErrInvalidSortOption, rpctypes.ErrCompacted, rpctypes.ErrFutureRev, rpctypes.ErrLeaseNotFound,
		rpctypes.ErrLeaseExist, rpctypes.ErrLeaseTTLTooLarge,
		rpctypes.ErrMemberExist, rpctypes.ErrPeerURLExist, rpctypes.ErrMemberNotEnoughStarted,
		rpctypes.ErrMemberBadURLs, rpctypes.ErrMemberNotFound,
		rpctypes.ErrMemberNotLearner, rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrTooManyLearners,
		rpctypes.ErrRootUserNotExist, rpctypes.ErrRootRoleNotExist,
		rpctypes.ErrUserAlreadyExist, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrRoleAlreadyExist,
		rpctypes.ErrRoleNotFound, rpctypes.ErrRoleEmpty,
		rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrRoleNotGranted,
		rpctypes.ErrPermissionNotGranted, rpctypes.ErrAuthNotEnabled,
		rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrInvalidAuthMgmt,
		rpctypes.ErrClusterIDMismatch, rpctypes.ErrNotLeader,
		rpctypes.ErrNotCapable, rpctypes.ErrCorrupt, rpctypes.ErrBadLeaderTransferee,
		rpctypes.ErrClusterVersionUnavailable, rpctypes.ErrWrongDowngradeVersionFormat,
		rpctypes.ErrInvalidDowngradeTargetVersion, rpctypes.ErrDowngradeInProcess, rpctypes.ErrNoInflightDowngrade,
		grpcstatus.Error(codes.Unknown, "x"),
	}
	type status struct {
		code   int32
		reason metav1.StatusReason
	}
	type want struct{ read, write status }
	same := func(code int32, reason metav1.StatusReason) want {
		return want{status{code, reason}, status{code, reason}}
	}
	all := map[error]want{
		rpctypes.ErrRequestTooLarge: same(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge),
		grpcstatus.Error(codes.ResourceExhausted, "trying to send message larger than max (3145728 vs. 2097152)"): same(
			http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge),
		rpctypes.ErrNoSpace:         same(http.StatusInsufficientStorage, StatusReasonInsufficientStorage),
		rpctypes.ErrTooManyRequests: same(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests),
	}
	for _, err := range unavailable {
		all[err] = want{status{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
			status{http.StatusGatewayTimeout, metav1.StatusReasonTimeout}}
	}
	for _, err := range failed {
		all[err] = same(http.StatusInternalServerError, internal)
	}
	for err, want := range all {
		for write, want := range map[bool]status{false: want.read, true: want.write} {
			explained := withStatus(err, write)
			var api apierrors.APIStatus
			if !errors.As(explained, &api) {
				t.Errorf("%v: no status", err)
				continue
			}
			if got := api.Status(); got.Code != want.code || got.Reason != want.reason ||
				got.Status != metav1.StatusFailure {
				t.Errorf("%v, write %t: got %d %s, want %d %s", err, write, got.Code, got.Reason,
					want.code, want.reason)
			}
			if !errors.Is(explained, err) || explained.Error() != err.Error() {
				t.Errorf("%v: changed to %v", err, explained)
			}
		}
	}
	for _, err := range []error{nil, errors.New("other"), storage.NewKeyNotFoundError("/a", 1),
		apierrors.NewNotFound(workshop.Resource("gadgets"), "g")} {
		if got := withStatus(err, true); !errors.Is(got, err) || fmt.Sprintf("%T", got) != fmt.Sprintf("%T", err) {
			t.Errorf("got %#v, want %#v unchanged", got, err)
		}
	}
}
