// SPDX-License-Identifier: Apache-2.0

package sourcecache

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "extension_apiserver"

var labels = []string{"group", "resource"}

var (
	servedNow = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "source_served", StabilityLevel: metrics.ALPHA,
		Help: "1 while the objects of a source are served; 0 if they are not known, or too old.",
	}, labels)
	complete = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "source_last_complete_timestamp_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Start time of the last complete list of a source, in seconds since 1970.",
	}, labels)
	objects = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "source_objects", StabilityLevel: metrics.ALPHA,
		Help: "Number of objects in the copy of a source.",
	}, labels)
	failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "source_errors_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of requests to a source that failed: lists and watches, and those of a live source.",
	}, labels)
	durations = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "source_list_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Duration of the lists and watches of a source, in seconds.",
		Buckets: metrics.ExponentialBuckets(0.01, 4, 8),
	}, labels)
)

var register = sync.OnceFunc(func() { legacyregistry.MustRegister(servedNow, complete, objects, failures, durations) })

// observers are the metrics of one source.
type observers struct{ of schema.GroupResource }

func observe(of schema.GroupResource) observers {
	register()
	failures.WithLabelValues(of.Group, of.Resource).Add(0)
	servedNow.WithLabelValues(of.Group, of.Resource).Set(0)
	return observers{of}
}

// CountFailures returns a function that counts a failed request to a source without a copy.
func CountFailures(of schema.GroupResource) func() {
	register()
	failures.WithLabelValues(of.Group, of.Resource).Add(0)
	return observers{of}.failed
}

func (o observers) polled(began time.Time, err error) {
	durations.WithLabelValues(o.of.Group, o.of.Resource).Observe(time.Since(began).Seconds())
	if err != nil {
		o.failed()
	}
}

func (o observers) failed() { failures.WithLabelValues(o.of.Group, o.of.Resource).Inc() }

func (o observers) completed(began time.Time) {
	complete.WithLabelValues(o.of.Group, o.of.Resource).Set(float64(began.Unix()))
	servedNow.WithLabelValues(o.of.Group, o.of.Resource).Set(1)
}

func (o observers) expired() { servedNow.WithLabelValues(o.of.Group, o.of.Resource).Set(0) }

func (o observers) objects(n int) { objects.WithLabelValues(o.of.Group, o.of.Resource).Set(float64(n)) }
