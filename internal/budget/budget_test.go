// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestOrder checks that shares are given in order, and that only users at their limit are skipped.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10, 6)
		var mutex sync.Mutex
		var served []string
		releases := map[string]func(){}
		take := func(name, user string, share int64) {
			go func() {
				release, err := b.Take(t.Context(), user, share)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				mutex.Lock()
				defer mutex.Unlock()
				served, releases[name] = append(served, name), release
			}()
			synctest.Wait()
		}
		release := func(name string) {
			releases[name]()
			synctest.Wait()
		}
		want := func(names ...string) {
			t.Helper()
			slices.Sort(served) // shares that are given at the same time have no order
			slices.Sort(names)
			if !slices.Equal(served, names) {
				t.Fatalf("got %v served, want %v", served, names)
			}
		}
		take("a1", "a", 6)
		want("a1")
		take("a2", "a", 1) // is at the limit of a user
		take("b1", "b", 3) // passes a2
		want("a1", "b1")
		take("c1", "c", 5) // waits for the total
		take("b2", "b", 1) // waits behind c1
		want("a1", "b1")
		release("a1")
		want("a1", "b1", "a2", "c1", "b2")
		take("d1", "d", 1000) // counts for the total
		for _, name := range []string{"a2", "b1", "c1"} {
			release(name)
			want("a1", "b1", "a2", "c1", "b2")
		}
		release("b2")
		want("a1", "b1", "a2", "c1", "b2", "d1")
		release("d1")
		if b.taken != 0 || len(b.users) != 0 || len(b.queue) != 0 {
			t.Errorf("got %d taken, %d users and %d waiting, want none", b.taken, len(b.users), len(b.queue))
		}
	})
}

// takeMinute requests a share for a minute. The user is added to served with the share.
func takeMinute(t *testing.T, b *Budget, served *[]string, user string, share int64) {
	t.Helper()
	go func() {
		release, err := b.Take(t.Context(), user, share)
		if err != nil {
			t.Error(err)
		}
		*served = append(*served, user)
		<-time.After(time.Minute)
		release()
	}()
	synctest.Wait()
}

// TestFair checks that the user who has had shares for a shorter time is next, even if others have
// waited longer.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(2, 2)
		var served []string
		take := func(user string, share int64) { takeMinute(t, b, &served, user, share) }
		for range 4 {
			take("a", 1)
			<-time.After(time.Second)
		}
		take("b", 1)
		<-time.After(time.Hour)
		if want := []string{"a", "a", "b", "a", "a"}; !slices.Equal(served, want) {
			t.Errorf("served %q, want %q", served, want)
		}
	})
}

// TestReserve checks that requests get no share of a reserved amount. The limit of one user
// remains available, and a larger share is given while no other is in use.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, served := New(12, 4), 0
		take := func(user string, share int64) (release func()) {
			done := make(chan func(), 1)
			go func() {
				release, err := b.Take(t.Context(), user, share)
				if err != nil {
					t.Error(err)
				}
				served++
				done <- release
			}()
			synctest.Wait()
			return func() { (<-done)(); synctest.Wait() }
		}
		want := func(n int) {
			t.Helper()
			if synctest.Wait(); served != n {
				t.Fatalf("%d are served, want %d", served, n)
			}
		}
		b.Reserve(100)
		first, second := take("a", 4), take("b", 1)
		want(1)
		first()
		want(2)
		third := take("a", 12)
		want(2)
		second()
		want(3)
		fourth := take("b", 4)
		third()
		want(4)
		fifth := take("c", 8)
		want(4)
		b.Reserve(-100)
		want(5)
		fourth()
		fifth()
	})
}

// TestTakeCancelled checks that a request that gives up has no share, and lets requests behind it
// pass.
func TestTakeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10, 10)
		release, err := b.Take(t.Context(), "a", 5)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := b.Take(ctx, "b", 10)
			ended <- err
		}()
		synctest.Wait()
		go func() {
			release, err := b.Take(t.Context(), "b", 1)
			release()
			ended <- err
		}()
		synctest.Wait()
		cancel()
		for _, want := range []error{context.Canceled, nil} {
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			synctest.Wait()
		}
		if b.taken != 5 || len(b.users) != 1 || len(b.queue) != 0 {
			t.Errorf("got %d taken, %d users and %d waiting, want 5, 1 and none", b.taken, len(b.users), len(b.queue))
		}
	})
}

// TestLimitTo checks that all shares together have what is free, and at least the limit of a user.
func TestLimitTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10, 4)
		free := int64(7)
		b.LimitTo(func(int64) int64 { return free })
		var served []string
		var releases []func()
		take := func(user string, share int64) {
			go func() {
				release, err := b.Take(t.Context(), user, share)
				if err != nil {
					t.Errorf("%s: %v", user, err)
				}
				served, releases = append(served, user), append(releases, release)
			}()
			synctest.Wait()
		}
		want := func(names ...string) {
			t.Helper()
			if !slices.Equal(served, names) {
				t.Fatalf("got %v served, want %v", served, names)
			}
		}
		take("a", 4)
		take("b", 3)
		want("a", "b")
		take("c", 1) // 8 are more than 7
		want("a", "b")
		free = -1
		releases[0]()
		synctest.Wait()
		want("a", "b", "c") // a user's 4 remain available
		take("d", 1)
		want("a", "b", "c")
		releases[1]()
		synctest.Wait()
		want("a", "b", "c", "d")
		releases[2]()
		releases[3]()
	})
}

// TestLowerLimit checks that the limit of a user is lower while less than the total is available.
func TestLowerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(12, 4)
		b.Reserve(6) // a user has a third of the rest
		var served []string
		take := func(user string, share int64) { takeMinute(t, b, &served, user, share) }
		take("a", 2)
		take("a", 1)
		take("b", 2)
		if want := []string{"a", "b"}; !slices.Equal(served, want) || !b.AtLimit("a", 1) {
			t.Errorf("served %q, want %q, since a is at its limit", served, want)
		}
		<-time.After(time.Hour)
		if want := []string{"a", "b", "a"}; !slices.Equal(served, want) {
			t.Errorf("served %q, want %q", served, want)
		}
	})
}
