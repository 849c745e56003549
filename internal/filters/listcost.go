// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"example.com/extension-apiserver/internal/objectsizes"
)

// listRequest is what the cost of a list depends on.
type listRequest struct {
	options   metav1.ListOptions
	cached    bool // read from the watch cache, and neither indented nor a deletion
	fromEtcd  bool
	table     bool // buffered, not streamed
	converted bool
}

func (m *Memory) parseList(req *http.Request, info *genericapirequest.RequestInfo) (l listRequest) {
	of, query := resourceOf(info), req.URL.Query()
	l.table, l.converted = buffered(req.Header.Get("Accept")), m.sizes.Converted(of, info.APIVersion)
	l.fromEtcd = metav1.Convert_url_Values_To_v1_ListOptions(&query, &l.options, nil) != nil // which the handler rejects
	if result, err := delegator.ShouldDelegateListMeta(&l.options, delegator.CacheWithoutSnapshots{}); err != nil ||
		result.ShouldDelegate {
		l.fromEtcd = true
	}
	l.cached = info.Verb == "list" && m.sizes.Known(of) && m.sizes.Lists(of) == nil && !l.fromEtcd && !pretty(req)
	return l
}

// listCost returns the cost of a list. It is 0 for a list with a listShare.
func (m *Memory) listCost(req *http.Request, info *genericapirequest.RequestInfo) (int64, error) {
	of := resourceOf(info)
	if lists := m.sizes.Lists(of); lists != nil {
		limit, _ := strconv.ParseInt(req.URL.Query().Get("limit"), 10, 64) // which the handler rejects
		return lists.Expected(info.Namespace, limit) * liveCost(req), nil
	}
	l := m.parseList(req, info)
	if l.cached || !m.sizes.Known(of) {
		return 0, nil
	}
	// A stale count is good enough.
	stats, err := m.counts.Get(of.String())
	if errors.Is(err, flowcontrolrequest.ObjectCountNotFoundErr) {
		return m.perUser, nil // the server has just started
	}
	objects, selects := stats.ObjectCount, l.options.LabelSelector != "" || l.options.FieldSelector != ""
	// For resourceVersion=0, the library returns all objects in its cache. With a selector, it
	// reads more objects than it returns.
	if l.options.Limit > 0 && l.options.ResourceVersion != "0" && (!selects || !l.fromEtcd) {
		objects = min(objects, l.options.Limit)
	}
	largest := m.sizes.Largest(of, info.Namespace)
	if info.Name != "" && info.Namespace != "" {
		objects, largest = min(objects, 1), m.sizes.Object(of, info.Namespace, info.Name)
	}
	// The returned objects may be the largest.
	size := objects * largest
	json, _, growth := m.sizes.Large(of, info.Namespace)
	// Small objects may be in other namespaces.
	if info.Verb == "list" && l.table && wholeObjects(req) && json*wholeByteCost > m.perUser &&
		m.sizes.Most(of, info.Namespace, objects)*wholeByteCost > m.perUser {
		m.sizes.Forget(req.Context(), of)
		if most := m.sizes.Most(of, info.Namespace, objects); most*wholeByteCost > m.perUser {
			return 0, m.tooLarge(most, largest)
		}
		json, _, growth = m.sizes.Large(of, info.Namespace)
	}
	if average := stats.EstimatedAverageObjectSizeBytes; average > 0 {
		_, stored, _ := m.sizes.Large(of, "") // the rest of the stored bytes is that of small objects
		size = min(size, max(0, stats.ObjectCount*(average+growth)-stored)+json)
	}
	if l.converted {
		return size*convertedByteCost + objects*wholeObjectCost, nil
	}
	return size*wholeByteCost + objects*wholeObjectCost, nil
}

// wholeObjects reports whether a Table has objects, or their metadata.
func wholeObjects(req *http.Request) bool {
	return req.URL.Query().Get("includeObject") != string(metav1.IncludeNone)
}

// tooLarge returns an error with status 413 for a Table of objects of a size in bytes.
func (m *Memory) tooLarge(size, largest int64) error {
	return apierrors.NewRequestEntityTooLargeError(
		fmt.Sprintf("the list needs %d MiB of memory, and the limit for a user is %d MiB; request JSON or "+
			"protobuf, or set limit to %d", size*wholeByteCost>>20, m.perUser>>20,
			max(1, m.perUser/wholeByteCost/largest)))
}

// liveCost returns the cost of a byte of a list whose objects are not stored.
func liveCost(req *http.Request) int64 {
	if buffered(req.Header.Get("Accept")) || pretty(req) {
		return liveWholeCost
	}
	return liveByteCost
}

// withListSize returns a request for a list of objects that are not stored. If the list needs more
// memory than its cost, the rest is reserved until forget is called.
func (m *Memory) withListSize(req *http.Request, info *genericapirequest.RequestInfo,
	cost int64) (with *http.Request, forget func()) {
	if info.Verb != "list" || m.sizes.Lists(resourceOf(info)) == nil {
		return req, func() {}
	}
	more := int64(0)
	ctx := objectsizes.WithListSize(req.Context(), func(size int64) {
		more = max(0, size*liveCost(req)-min(cost, m.total))
		m.budget.Reserve(more)
	})
	return req.WithContext(ctx), func() { m.budget.Reserve(-more) }
}
