// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/metrics/legacyregistry"

	"example.com/extension-apiserver/pkg/embeddedetcd"
)

// TestAlarms: an alarm of etcd fails the check and sets the metric until it is disarmed.
func TestAlarms(t *testing.T) {
	endpoint, _, closeEtcd, err := embeddedetcd.Server{}.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer closeEtcd()
	client, err := newEtcdClient(t.Context(), storagebackend.TransportConfig{ServerList: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	members, err := client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := newAlarms()
	for _, alarm := range []etcdserverpb.AlarmType{etcdserverpb.AlarmType_NOSPACE, etcdserverpb.AlarmType_CORRUPT} {
		a.update(t.Context(), client)
		if err := a.Check(nil); err != nil || metric(t, alarm.String()) != 0 {
			t.Errorf("without an alarm: %v, metric %v, want nil and 0", err, metric(t, alarm.String()))
		}
		request := etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE,
			MemberID: members.Members[0].ID, Alarm: alarm}
		if _, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(),
			&request); err != nil {
			t.Fatal(err)
		}
		a.update(t.Context(), client)
		if err := a.Check(nil); err == nil || !strings.Contains(err.Error(), alarm.String()) ||
			metric(t, alarm.String()) != 1 {
			t.Errorf("with the alarm %s: %v, metric %v, want an error that names it, and 1", alarm, err,
				metric(t, alarm.String()))
		}
		if _, err := client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
			t.Fatal(err)
		}
	}
	a.update(t.Context(), client)
	if err := a.Check(nil); err != nil {
		t.Errorf("after the alarms were disarmed: %v, want nil", err)
	}
}

// metric returns the value of the metric for an alarm.
func metric(t *testing.T, alarm string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "extension_apiserver_etcd_alarm" && m.GetLabel()[0].GetValue() == alarm {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric for %s", alarm)
	return 0
}
