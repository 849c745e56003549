// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

const (
	// alarmsPeriod is the interval at which the server reads the alarms of etcd.
	alarmsPeriod = 30 * time.Second
	// alarmsTimeout is the timeout of one request.
	alarmsTimeout = 5 * time.Second
)

// etcdAlarm has the value 1 for each raised alarm.
var etcdAlarm = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Subsystem: "extension_apiserver",
	Name:      "etcd_alarm",
	Help: "1 while etcd has raised the alarm: NOSPACE (it refuses writes, except deletions) or CORRUPT " +
		"(members differ).",
	StabilityLevel: metrics.ALPHA,
}, []string{"alarm"})

var registerAlarms = sync.OnceFunc(func() { legacyregistry.MustRegister(etcdAlarm) })

// alarms is the health check etcd-alarms, which fails while etcd has raised an alarm. The
// library's checks pass then, because reads and deletions are still served. All replicas share
// one etcd, so the readiness probe of the manifests excludes this check.
type alarms struct{ raised atomic.Pointer[string] }

func newAlarms() *alarms {
	registerAlarms()
	return &alarms{}
}

// run reads the alarms of an etcd periodically until the context is done.
func (a *alarms) run(ctx context.Context, t storagebackend.TransportConfig) {
	client, err := newEtcdClient(ctx, t)
	if err != nil {
		klog.ErrorS(err, "Unable to watch the alarms of etcd")
		return
	}
	defer client.Close()
	wait.UntilWithContext(ctx, func(ctx context.Context) { a.update(ctx, client) }, alarmsPeriod)
}

// update reads the alarms once. If etcd does not respond, the last observation remains valid: the
// library's checks report the outage.
func (a *alarms) update(ctx context.Context, client clientv3.Maintenance) {
	ctx, cancel := context.WithTimeout(ctx, alarmsTimeout)
	defer cancel()
	list, err := client.AlarmList(ctx)
	if err != nil {
		klog.V(2).InfoS("Failed to read the alarms of etcd", "err", err)
		return
	}
	names := sets.New[string]()
	for _, alarm := range list.Alarms {
		names.Insert(alarm.Alarm.String())
	}
	for _, known := range []etcdserverpb.AlarmType{etcdserverpb.AlarmType_NOSPACE, etcdserverpb.AlarmType_CORRUPT} {
		value := 0.0
		if names.Has(known.String()) {
			value = 1
		}
		etcdAlarm.WithLabelValues(known.String()).Set(value)
	}
	raised := strings.Join(sets.List(names), ", ")
	if before := a.raised.Swap(&raised); raised != "" && (before == nil || *before != raised) {
		klog.ErrorS(a.Check(nil), "etcd alarm")
	}
}

// Name implements healthz.HealthChecker.
func (a *alarms) Name() string { return "etcd-alarms" }

// Check implements healthz.HealthChecker.
func (a *alarms) Check(*http.Request) error {
	if raised := a.raised.Load(); raised != nil && *raised != "" {
		return fmt.Errorf("etcd has raised the alarm %s; see docs/operate/runbooks.md", *raised)
	}
	return nil
}
