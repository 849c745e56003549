// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// Defragmented is the result for one member. Sizes are in bytes.
type Defragmented struct {
	Endpoint string        `json:"endpoint"`
	Name     string        `json:"name"`
	Leader   bool          `json:"leader"`
	Before   int64         `json:"beforeBytes"`
	After    int64         `json:"afterBytes"`
	Took     time.Duration `json:"-"`
	Seconds  float64       `json:"seconds"`
}

// Defrag rewrites the databases of all members without the space that deleted and compacted keys
// left, one member after the other, the leader last. A member does not respond meanwhile, so the
// cluster must be able to do without it: Defrag starts only if all members are healthy, and checks
// this again before each further member. With an error, it also returns the members that are done.
func (t Target) Defrag(ctx context.Context, progress io.Writer) ([]Defragmented, error) {
	status, err := t.healthy(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was defragmented", err)
	}
	members := slices.Clone(status.Members)
	// The leader's pause makes the others elect another leader. If the leader is last, this
	// happens only once.
	slices.SortStableFunc(members, func(a, b Member) int {
		switch {
		case a.Leader == b.Leader:
			return 0
		case a.Leader:
			return 1
		}
		return -1
	})
	var done []Defragmented
	for i, m := range members {
		if i > 0 {
			if _, err := t.healthy(ctx); err != nil {
				return done, fmt.Errorf("after %d of %d members: %w", i, len(members), err)
			}
		}
		d, err := t.defragMember(ctx, m, progress, fmt.Sprintf("%d of %d", i+1, len(members)))
		if err != nil {
			return done, fmt.Errorf("defragment %s, %d of %d: %w", m.title(), i+1, len(members), err)
		}
		done = append(done, *d)
	}
	return done, nil
}

// healthy returns the status of a cluster in which all members can be reached and are healthy. It
// accepts a full database, because defragmentation is the remedy.
func (t Target) healthy(ctx context.Context) (*Status, error) {
	status, err := t.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range status.Members {
		if full := slices.Equal(m.Alarms, []string{"NOSPACE"}); m.Health != Healthy && !full {
			return nil, fmt.Errorf("member %s is %s: %s; all members must be healthy, see the command storage status",
				m.title(), m.Health, m.Problem)
		}
	}
	return status, nil
}

func (t Target) defragMember(ctx context.Context, m Member, progress io.Writer, which string) (*Defragmented, error) {
	client, err := t.client(ctx, m.Endpoint)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	began := time.Now()
	stop := report(progress, func() string {
		return fmt.Sprintf("defragmenting %s, %s, %s", m.title(), which, BytesText(m.Size))
	})
	_, err = client.Defragment(ctx, m.Endpoint)
	stop()
	if err != nil {
		return nil, err
	}
	after := queryMember(ctx, client, m.Endpoint)
	if after.id == 0 {
		return nil, fmt.Errorf("read its status afterwards: %s", after.Problem)
	}
	took := time.Since(began)
	return &Defragmented{m.Endpoint, m.Name, m.Leader, m.Size, after.Size, took, took.Seconds()}, nil
}
