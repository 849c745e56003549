// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Health reports whether a member serves reads that need the consent of the whole cluster, and has
// no alarm.
type Health string

// Values of Health.
const (
	Healthy   Health = "healthy"
	Unhealthy Health = "unhealthy"
	// Unknown means that no given endpoint leads to the member.
	Unknown Health = "unknown"
)

// Member describes one member of the cluster as the member itself reports it. Sizes are in bytes.
type Member struct {
	Endpoint string `json:"endpoint,omitempty"`
	// ID is in hexadecimal, as etcdctl prints it.
	ID      string `json:"id,omitempty"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Leader  bool   `json:"leader"`
	Learner bool   `json:"learner"`
	// Revision is the last revision that this member has applied.
	Revision int64 `json:"revision"`
	Size     int64 `json:"sizeBytes"`
	InUse    int64 `json:"inUseBytes"`
	// Quota is the size at which writes are rejected; 0 if the member, before 3.6, does not report
	// it.
	Quota   int64    `json:"quotaBytes,omitempty"`
	Alarms  []string `json:"alarms,omitempty"`
	Health  Health   `json:"health"`
	Problem string   `json:"problem,omitempty"`

	id uint64
}

// Status is the state of the cluster.
type Status struct {
	Members []Member `json:"members"`
}

// Problems returns an error that names the unhealthy members, or nil if there are none. A member
// whose state is unknown is not a problem.
func (s *Status) Problems() error {
	var errs []error
	for _, m := range s.Members {
		if m.Health == Unhealthy {
			errs = append(errs, fmt.Errorf("etcd member %s is unhealthy: %s", m.title(), m.Problem))
		}
	}
	return errors.Join(errs...)
}

func (m Member) title() string {
	return strings.TrimSpace(m.Name + " " + m.Endpoint)
}

// Status queries each endpoint, and the first healthy one also for the list of members. It returns
// an error only if the endpoints are not known or a client cannot be created. Problems of members
// are in the result.
func (t Target) Status(ctx context.Context) (*Status, error) {
	endpoints, err := t.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	status := &Status{}
	var listed []*etcdserverpb.Member
	for _, endpoint := range endpoints {
		client, err := t.client(ctx, endpoint)
		if err != nil {
			return nil, err
		}
		m := queryMember(ctx, client, endpoint)
		if listed == nil && m.Health == Healthy {
			listed = listMembers(ctx, client)
		}
		client.Close()
		// Two URLs, or two names, of one member.
		if m.id == 0 || !slices.ContainsFunc(status.Members, func(other Member) bool { return other.id == m.id }) {
			status.Members = append(status.Members, m)
		}
	}
	for _, known := range listed {
		status.add(known)
	}
	return status, nil
}

// add assigns a member of the cluster's list to its endpoint, or adds it as a member that was not
// queried.
func (s *Status) add(known *etcdserverpb.Member) {
	for i := range s.Members {
		m := &s.Members[i]
		if m.id == known.ID || m.id == 0 && slices.Contains(known.ClientURLs, m.Endpoint) {
			m.id, m.ID, m.Name = known.ID, fmt.Sprintf("%x", known.ID), known.Name
			return
		}
	}
	s.Members = append(s.Members, Member{
		id: known.ID, ID: fmt.Sprintf("%x", known.ID), Name: known.Name, Learner: known.IsLearner, Health: Unknown,
		Problem: "not in --etcd-servers, or it does not respond; it advertises " +
			strings.Join(known.ClientURLs, ","),
	})
}

// queryMember queries the status of one member, and whether it can read.
func queryMember(ctx context.Context, client *clientv3.Client, endpoint string) Member {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m := Member{Endpoint: endpoint, Health: Unhealthy}
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		m.Problem = fmt.Sprintf("no response within %s: %v", callTimeout, err)
		return m
	}
	m.id, m.ID = status.Header.MemberId, fmt.Sprintf("%x", status.Header.MemberId)
	m.Version, m.Revision = status.Version, status.Header.Revision
	m.Leader, m.Learner = status.Leader == status.Header.MemberId, status.IsLearner
	m.Size, m.InUse, m.Quota = status.DbSize, status.DbSizeInUse, status.DbSizeQuota
	// A learner serves no reads, and need not, because it has no vote.
	if !m.Learner {
		// A permission error shows that the cluster authenticated the client and responded.
		if _, err := client.Get(ctx, "health"); err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
			m.Problem = fmt.Sprintf("read a key within %s: %v", callTimeout, err)
			return m
		}
		if m.Alarms, err = alarms(ctx, client, m.id); err != nil {
			m.Problem = fmt.Sprintf("list alarms: %v", err)
			return m
		}
	}
	if len(m.Alarms) > 0 {
		m.Problem = "alarm " + strings.Join(m.Alarms, ", ") + "; see docs/operate/runbooks.md"
		return m
	}
	m.Health = Healthy
	return m
}

// alarms returns the alarms of one member.
func alarms(ctx context.Context, client *clientv3.Client, id uint64) ([]string, error) {
	list, err := client.AlarmList(ctx)
	if err != nil {
		return nil, err
	}
	var own []string
	for _, alarm := range list.Alarms {
		if alarm.MemberID == id {
			own = append(own, alarm.Alarm.String())
		}
	}
	return own, nil
}

// listMembers returns nil if the request fails. The responses of the endpoints remain.
func listMembers(ctx context.Context, client *clientv3.Client) []*etcdserverpb.Member {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil
	}
	return list.Members
}
