// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestCluster runs the life cycle of an external cluster: status, defragmentation, snapshot, and
// restore member by member.
func TestCluster(t *testing.T) {
	dir := shortDir(t)
	c := newCluster(t, dir)
	c.start(t)
	client := fill(t, c.Target, 50)
	makeSpace(t, client)
	t.Run("status", func(t *testing.T) { testStatus(t, c, client) })
	t.Run("defrag", func(t *testing.T) { testDefrag(t, c) })
	out, want := filepath.Join(t.TempDir(), "s.db"), allKeys(t, client)
	if _, err := c.Snapshot(t.Context(), SnapshotOptions{Out: out}); err != nil {
		t.Fatal(err)
	}
	t.Run("alarm", func(t *testing.T) { testAlarm(t, c, client) })
	t.Run("one member down", func(t *testing.T) { testDown(t, c) })
	for _, stop := range c.stop {
		stop()
	}
	for _, config := range c.configs {
		config.Dir = filepath.Join(dir, "restored-"+config.Name)
		if _, err := Restore(RestoreOptions{From: out, RevisionBump: DefaultRevisionBump, Member: RestoreMember{
			DataDir: config.Dir, Name: config.Name, InitialCluster: config.InitialCluster,
			InitialClusterToken:      "restored",
			InitialAdvertisePeerURLs: []string{config.AdvertisePeerUrls[0].String()},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	c.start(t)
	c.status(t, "all restored members healthy", func(s *Status) bool {
		return len(s.Members) == 3 &&
			health(s) == "healthy healthy healthy"
	})
	for _, endpoint := range c.Transport.ServerList {
		one := c.Target
		one.Transport.ServerList = []string{endpoint}
		if diff := cmp.Diff(want, allKeys(t, connect(t, one)),
			cmpopts.IgnoreUnexported(mvccpb.KeyValue{})); diff != "" {
			t.Errorf("keys of the restored member at %s (-before +after):\n%s", endpoint, diff)
		}
	}
}

// makeSpace leaves unused pages in the database.
func makeSpace(t *testing.T, client *clientv3.Client) {
	t.Helper()
	if _, err := client.Delete(t.Context(), "/registry/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), put(t, client, "other/c", "c"),
		clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

func health(s *Status) string {
	var all []string
	for _, m := range s.Members {
		all = append(all, string(m.Health))
	}
	return strings.Join(all, " ")
}

func names(s *Status) (all []string) {
	for _, m := range s.Members {
		all = append(all, m.Name)
	}
	return all
}

func testStatus(t *testing.T, c *cluster, client *clientv3.Client) {
	// Each member frees the pages of compacted keys by itself, and counts them with the next
	// writes.
	s := c.status(t, "all healthy, with space to release", func(s *Status) bool {
		put(t, client, "other/c", "c")
		return health(s) == "healthy healthy healthy" && !slices.ContainsFunc(s.Members,
			func(m Member) bool { return m.InUse > m.Size/2 })
	})
	if diff := cmp.Diff([]string{"a", "b", "c"}, names(s)); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	leaders := 0
	for _, m := range s.Members {
		if m.Leader {
			leaders++
		}
		if m.Size < 500_000 || m.InUse <= 0 || m.Quota != 2<<30 || m.Revision < 50 ||
			m.Version != version.Version || m.ID == "" {
			t.Errorf("member: got %+v, want more than 500 kB of which some are in use, etcd's quota of 2 GiB, a "+
				"revision from 50, version %s, an ID", m, version.Version)
		}
	}
	if leaders != 1 {
		t.Errorf("leaders: got %d, want 1", leaders)
	}
	// With one of three endpoints, the status reports that there are more members, and
	// defragmentation is refused.
	one := c.Target
	one.Transport.ServerList = c.Transport.ServerList[:1]
	s, err := one.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if health(s) != "healthy unknown unknown" || s.Problems() != nil {
		t.Errorf("status with one endpoint: got %s, problems %v, want two unknown members and no problems",
			health(s), s.Problems())
	}
	if _, err := one.Defrag(t.Context(), nil); err == nil ||
		!strings.Contains(err.Error(), "nothing was defragmented") {
		t.Errorf("defragmentation with one endpoint: got error %v, want it refused", err)
	}
	// Two URLs of one member count as one member.
	one.Transport.ServerList = []string{c.Transport.ServerList[0], c.Transport.ServerList[0] + "/"}
	if s, err = one.Status(t.Context()); err != nil || health(s) != "healthy unknown unknown" {
		t.Errorf("status with one member twice: got %+v (%v), want one healthy member and two unknown", s, err)
	}
}

func testDefrag(t *testing.T, c *cluster) {
	done, err := c.Defrag(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for i, d := range done {
		order = append(order, d.Name)
		if d.After <= 0 || d.After > d.Before/2 {
			t.Errorf("member %s: got %d bytes before and %d after, want less than half", d.Name, d.Before, d.After)
		}
		if d.Leader != (i == 2) {
			t.Errorf("member %s, number %d: got leader %v, want the leader last", d.Name, i+1, d.Leader)
		}
	}
	slices.Sort(order)
	if diff := cmp.Diff([]string{"a", "b", "c"}, order); diff != "" {
		t.Errorf("members that were defragmented (-want +got):\n%s", diff)
	}
}

// testAlarm checks that the alarm of a full database is reported, and that the database can still
// be saved and defragmented.
func testAlarm(t *testing.T, c *cluster, client *clientv3.Client) {
	s := c.status(t, "all healthy", func(s *Status) bool { return health(s) == "healthy healthy healthy" })
	raise := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		if _, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(),
			&etcdserverpb.AlarmRequest{Action: action, MemberID: s.Members[1].id,
				Alarm: etcdserverpb.AlarmType_NOSPACE}); err != nil {
			t.Fatal(err)
		}
	}
	raise(etcdserverpb.AlarmRequest_ACTIVATE)
	defer raise(etcdserverpb.AlarmRequest_DEACTIVATE)
	full := c.status(t, "an alarm of b", func(s *Status) bool { return health(s) == "healthy unhealthy healthy" })
	if got := fmt.Sprint(full.Members[1].Alarms, full.Problems()); !strings.HasPrefix(got,
		"[NOSPACE] etcd member b http://127.") || !strings.Contains(got, "alarm NOSPACE") {
		t.Errorf("status with an alarm of b: got %s, want NOSPACE of b", got)
	}
	if _, err := c.Defrag(t.Context(), nil); err != nil {
		t.Errorf("defragmentation of a full database: %v", err)
	}
	if _, err := c.Snapshot(t.Context(), SnapshotOptions{Out: filepath.Join(t.TempDir(), "s.db")}); err != nil {
		t.Errorf("snapshot of a full database: %v", err)
	}
}

// testDown checks that a cluster with a member down can be saved, and that it is not defragmented,
// because it could lose its quorum.
func testDown(t *testing.T, c *cluster) {
	c.stop[2]()
	s := c.status(t, "c unhealthy, the others healthy", func(s *Status) bool {
		return health(s) == "healthy healthy unhealthy"
	})
	if diff := cmp.Diff([]string{"a", "b", "c"}, names(s)); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if err := s.Problems(); err == nil || !strings.Contains(err.Error(), "etcd member c http://127.") ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("problems: got %v, want that the connection to c is refused", err)
	}
	if done, err := c.Defrag(t.Context(), nil); err == nil ||
		!strings.Contains(err.Error(), "member c ") || len(done) > 0 {
		t.Errorf("defragmentation: got %v, error %v, want it refused because of c", done, err)
	}
	if _, err := c.Snapshot(t.Context(), SnapshotOptions{Out: filepath.Join(t.TempDir(), "s.db")}); err != nil {
		t.Errorf("snapshot: %v", err)
	}
}
