// SPDX-License-Identifier: Apache-2.0

// Package fairness limits how many slots of a shared resource one key may take, so that one user
// or address cannot take all of them. It costs a map entry for each key that holds a slot.
package fairness

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
)

// ErrFull is returned when a key may neither take a slot nor wait for one.
var ErrFull = errors.New("too many requests at once")

// Limits are numbers of slots.
type Limits struct {
	// PerKey is how many slots a key may hold. Required.
	PerKey int
	// Queued is how many more callers of a key may wait. Default: 0, no caller waits.
	Queued int
	// Total is how many slots may be held or waited for in total. Default: 0, no limit.
	Total int
	// Reserved is how many slots a key may hold even when the total is reached.
	Reserved int
}

// Slots assigns slots to keys.
type Slots struct {
	limits Limits
	mutex  sync.Mutex
	keys   map[string]*keySlots
	count  int
}

// keySlots holds the slots of one key. count includes the callers that wait.
type keySlots struct {
	taken chan struct{}
	count int
}

// New returns Slots within the limits.
func New(limits Limits) *Slots { return &Slots{limits: limits, keys: map[string]*keySlots{}} }

// Take takes a slot for the key, and waits for one until the context ends. It returns ErrFull
// immediately if the limits are reached. Call release, once, to return the slot.
func (p *Slots) Take(ctx context.Context, key string) (release func(), err error) {
	own := p.enter(key)
	if own == nil {
		return nil, ErrFull
	}
	select {
	case own.taken <- struct{}{}:
		return func() {
			<-own.taken
			p.leave(key, own)
		}, nil
	case <-ctx.Done():
		p.leave(key, own)
		return nil, context.Cause(ctx)
	}
}

// enter counts a caller. It returns nil if the limits are reached.
func (p *Slots) enter(key string) *keySlots {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	own := p.keys[key]
	count := 0
	if own != nil {
		count = own.count
	}
	l := p.limits
	if count >= l.PerKey+l.Queued || (l.Total > 0 && p.count >= l.Total && count >= l.Reserved) {
		return nil
	}
	if own == nil {
		own = &keySlots{taken: make(chan struct{}, l.PerKey)}
		p.keys[key] = own
	}
	own.count++
	p.count++
	return own
}

func (p *Slots) leave(key string, own *keySlots) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.count--
	if own.count--; own.count == 0 {
		delete(p.keys, key)
	}
}

// ClientKey returns the key of a client: the host of its address or, for IPv6, the /64 network,
// because a client has all addresses of the network. If address has no host, ClientKey returns it
// unchanged.
func ClientKey(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Is6() || ip.Is4In6() {
		return host
	}
	network, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return network.String()
}
