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
	// Total is how many slots may be held in total. Default: 0, no limit.
	Total int
	// Reserved is how many more slots a key may hold when the total is reached.
	Reserved int
}

// Slots assigns slots to keys.
type Slots struct {
	limits Limits
	total  chan struct{} // nil if there is no total limit
	mutex  sync.Mutex
	keys   map[string]*keySlots
}

// keySlots holds the slots of one key. count includes the callers that wait.
type keySlots struct {
	taken, reserved chan struct{}
	count           int
}

// New returns Slots within the limits.
func New(limits Limits) *Slots {
	p := &Slots{limits: limits, keys: map[string]*keySlots{}}
	if limits.Total > 0 {
		p.total = make(chan struct{}, limits.Total)
	}
	return p
}

// Take takes a slot for the key, and waits for one until the context ends. It returns ErrFull
// immediately if the caller may not wait. Call release, once, to return the slot.
func (p *Slots) Take(ctx context.Context, key string) (release func(), err error) {
	own := p.enter(key)
	if own == nil {
		return nil, ErrFull
	}
	select {
	case own.taken <- struct{}{}:
	case <-ctx.Done():
		p.leave(key, own)
		return nil, context.Cause(ctx)
	}
	place, err := p.place(ctx, own)
	if err != nil {
		<-own.taken
		p.leave(key, own)
		return nil, err
	}
	return func() {
		if place != nil {
			<-place
		}
		<-own.taken
		p.leave(key, own)
	}, nil
}

// place takes one of the total, or of the key's reserve. It returns what has to be received to
// release it, nil without a total.
func (p *Slots) place(ctx context.Context, own *keySlots) (chan struct{}, error) {
	if p.total == nil {
		return nil, nil
	}
	select {
	case p.total <- struct{}{}:
		return p.total, nil
	default:
	}
	select {
	case own.reserved <- struct{}{}:
		return own.reserved, nil
	default:
	}
	if p.limits.Queued == 0 {
		return nil, ErrFull
	}
	select {
	case p.total <- struct{}{}:
		return p.total, nil
	case own.reserved <- struct{}{}:
		return own.reserved, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// enter counts a caller. It returns nil if the limits of the key are reached.
func (p *Slots) enter(key string) *keySlots {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	own := p.keys[key]
	if own == nil {
		own = &keySlots{taken: make(chan struct{}, p.limits.PerKey), reserved: make(chan struct{}, p.limits.Reserved)}
		p.keys[key] = own
	}
	if own.count >= p.limits.PerKey+p.limits.Queued {
		return nil
	}
	own.count++
	return own
}

func (p *Slots) leave(key string, own *keySlots) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
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
