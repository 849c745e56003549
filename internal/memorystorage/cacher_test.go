// SPDX-License-Identifier: Apache-2.0

package memorystorage

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/feature"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
)

// cached is a cacher of the library in front of a storage, as package sourcecache creates it.
type cached struct {
	storage.Interface
	memory *Storage
}

// layout is how a cacher stores objects: with or without their namespace in the key, and with or
// without indexes.
type layout struct{ clusterScoped, indexed bool }

// progressing is a client of an etcd that reports the progress of watches, as the storage does.
type progressing struct{}

func (progressing) Endpoints() []string { return []string{"memory"} }

func (progressing) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: "3.7.0"}, nil
}

func newCached(t *testing.T, l layout) cached {
	t.Helper()
	const prefix = "/pods/"
	scheme, memory := runtime.NewScheme(), newStorage()
	if err := errors.Join(example.AddToScheme(scheme), examplev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	config := cacher.Config{
		Storage: memory.ForCacher(), Versioner: memory.Versioner(), GroupResource: schema.GroupResource{Resource: "pods"},
		EventsHistoryWindow: cacher.DefaultEventFreshDuration, ResourcePrefix: prefix,
		KeyFunc: func(obj runtime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, obj) },
		NewFunc: newPod, NewListFunc: func() runtime.Object { return &example.PodList{} }, GetAttrsFunc: podAttributes,
		Indexers: &cache.Indexers{}, Codec: serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion),
	}
	if l.clusterScoped {
		config.KeyFunc = func(obj runtime.Object) (string, error) { return storage.NoNamespaceKeyFunc(prefix, obj) }
	}
	if l.indexed {
		config.IndexerFuncs = storage.IndexerFuncs{"spec.nodeName": func(obj runtime.Object) string {
			return obj.(*example.Pod).Spec.NodeName
		}}
		config.Indexers = &cache.Indexers{
			"f:spec.nodeName":      func(obj any) ([]string, error) { return []string{obj.(*example.Pod).Spec.NodeName}, nil },
			"f:metadata.namespace": func(obj any) ([]string, error) { return []string{obj.(*example.Pod).Namespace}, nil },
		}
	}
	c, err := cacher.NewCacherFromConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	delegator := cacher.NewCacheDelegator(c, memory)
	t.Cleanup(func() {
		delegator.Stop()
		c.Stop()
	})
	// The library serves consistent reads from the cacher when it has found such an etcd.
	feature.DefaultFeatureSupportChecker.CheckClient(context.Background(), progressing{}, storage.RequestWatchProgress)
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, wait.ForeverTestTimeout, true,
		func(context.Context) (bool, error) {
			return feature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress), nil
		})
	if err = errors.Join(err, c.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	return cached{delegator, memory}
}

func podAttributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := obj.(*example.Pod)
	if !ok {
		return nil, nil, errors.New("not a pod")
	}
	return pod.Labels, fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy), "status.phase": string(pod.Status.Phase),
	}, nil
}

// increaseUnseen does what a change of another resource does in etcd: the watches of a cacher do not
// see it until they request progress.
func (s *Storage) increaseUnseen(context.Context, *testing.T) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	return int64(s.revision) //nolint:gosec // < 2^63
}

// settled is a storage whose Create returns when the cacher has the object.
type settled struct{ cached }

// Create implements storage.Interface.
func (s settled) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := s.cached.Create(ctx, key, obj, out, ttl); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, wait.ForeverTestTimeout, true,
		func(ctx context.Context) (bool, error) {
			current := newPod()
			err := s.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, current)
			if storage.IsNotFound(err) {
				return false, nil
			}
			return err == nil && apiequality.Semantic.DeepEqual(current, out), err
		})
}

// TestCacher runs the tests of k8s.io/apiserver for its cacher with this storage, except those that
// TestStorage does not run, and these:
//   - RunTestList and MarkConsistent count the lists that reach etcd, with a client of etcd.
//   - RunTestCompactRevision needs access to the cacher, which otherwise looks for a compaction only
//     every 15 s, and the second half of RunTestWatchFromZero too.
//   - RunTestListInconsistentContinuation, RunTestGuaranteedUpdate and RunTestWatchContextCancel are
//     not run with a cacher by the library either.
func TestCacher(t *testing.T) {
	type testCase struct {
		layout
		run func(context.Context, *testing.T, cached)
	}
	plain := func(f func(context.Context, *testing.T, storage.Interface), l ...layout) testCase {
		return testCase{append(l, layout{})[0], func(ctx context.Context, t *testing.T, c cached) {
			t.Helper()
			f(ctx, t, c)
		}}
	}
	afterCreate := func(f func(context.Context, *testing.T, storage.Interface)) testCase {
		return testCase{run: func(ctx context.Context, t *testing.T, c cached) { t.Helper(); f(ctx, t, settled{c}) }}
	}
	anyCalls := func(*testing.T, uint64, uint64) {}
	paging := func(f func(context.Context, *testing.T, storage.Interface, storagetesting.CallsValidation)) testCase {
		return testCase{run: func(ctx context.Context, t *testing.T, c cached) { t.Helper(); f(ctx, t, c, anyCalls) }}
	}
	for name, test := range map[string]testCase{
		"Create": {run: func(ctx context.Context, t *testing.T, c cached) {
			t.Helper()
			storagetesting.RunTestCreate(ctx, t, c, noCheck)
		}},
		"CreateWithKeyExist":                      plain(storagetesting.RunTestCreateWithKeyExist),
		"Get":                                     plain(storagetesting.RunTestGet),
		"UnconditionalDelete":                     plain(storagetesting.RunTestUnconditionalDelete),
		"ConditionalDelete":                       plain(storagetesting.RunTestConditionalDelete),
		"DeleteWithSuggestion":                    plain(storagetesting.RunTestDeleteWithSuggestion),
		"DeleteWithSuggestionAndConflict":         plain(storagetesting.RunTestDeleteWithSuggestionAndConflict),
		"DeleteWithConflict":                      plain(storagetesting.RunTestDeleteWithConflict),
		"DeleteWithSuggestionOfDeletedObject":     plain(storagetesting.RunTestDeleteWithSuggestionOfDeletedObject),
		"ValidateDeletionWithSuggestion":          plain(storagetesting.RunTestValidateDeletionWithSuggestion),
		"ValidateDeletionWithOnlySuggestionValid": plain(storagetesting.RunTestValidateDeletionWithOnlySuggestionValid),
		"PreconditionalDeleteWithSuggestion":      plain(storagetesting.RunTestPreconditionalDeleteWithSuggestion),
		"PreconditionalDeleteWithOnlySuggestionPass": plain(
			storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass),
		"ConsistentList": {run: func(ctx context.Context, t *testing.T, c cached) {
			t.Helper()
			storagetesting.RunTestConsistentList(ctx, t, c, c.memory.increaseUnseen, true, true,
				utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot))
		}},
		"GetListNonRecursive": {run: func(ctx context.Context, t *testing.T, c cached) {
			t.Helper()
			storagetesting.RunTestGetListNonRecursive(ctx, t, c.memory.increaseUnseen, c)
		}},
		"GetListRecursivePrefix":                    plain(storagetesting.RunTestGetListRecursivePrefix),
		"ListContinuation":                          paging(storagetesting.RunTestListContinuation),
		"ListPaginationRareObject":                  paging(storagetesting.RunTestListPaginationRareObject),
		"ListContinuationWithFilter":                paging(storagetesting.RunTestListContinuationWithFilter),
		"GuaranteedUpdateWithConflict":              plain(storagetesting.RunTestGuaranteedUpdateWithConflict),
		"GuaranteedUpdateWithSuggestionAndConflict": plain(storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict),
		"ListPaging":                                plain(storagetesting.RunTestListPaging),
		"NamespaceScopedList":                       plain(storagetesting.RunTestNamespaceScopedList, layout{indexed: true}),
		"KeySchema":                                 plain(storagetesting.RunTestKeySchema),
		"Watch":                                     plain(storagetesting.RunTestWatch),
		"WatchFromZero": {run: func(ctx context.Context, t *testing.T, c cached) {
			t.Helper()
			storagetesting.RunTestWatchFromZero(ctx, t, c, nil)
		}},
		"DeleteTriggerWatch":                 plain(storagetesting.RunTestDeleteTriggerWatch),
		"WatchFromNonZero":                   plain(storagetesting.RunTestWatchFromNonZero),
		"DelayedWatchDelivery":               plain(storagetesting.RunTestDelayedWatchDelivery),
		"WatcherTimeout":                     plain(storagetesting.RunTestWatcherTimeout),
		"WatchDeleteEventObjectHaveLatestRV": plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV),
		"WatchInitializationSignal":          plain(storagetesting.RunTestWatchInitializationSignal),
		"ClusterScopedWatch": plain(storagetesting.RunTestClusterScopedWatch,
			layout{clusterScoped: true, indexed: true}),
		"NamespaceScopedWatch": plain(storagetesting.RunTestNamespaceScopedWatch, layout{indexed: true}),
		"WatchDispatchBookmarkEvents": {run: func(ctx context.Context, t *testing.T, c cached) {
			t.Helper()
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, c, true)
		}},
		"WatchBookmarksWithCorrectResourceVersion": plain(
			storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion),
		"SendInitialEventsBackwardCompatibility": plain(storagetesting.RunSendInitialEventsBackwardCompatibility),
		"WatchSemantics":                         afterCreate(storagetesting.RunWatchSemantics),
		"WatchSemanticInitialEventsExtended":     afterCreate(storagetesting.RunWatchSemanticInitialEventsExtended),
		"WatchListMatchSingle":                   afterCreate(storagetesting.RunWatchListMatchSingle),
	} {
		t.Run(name, func(t *testing.T) { test.run(t.Context(), t, newCached(t, test.layout)) })
	}
}
