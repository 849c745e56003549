// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"
)

// attacker sends the requests of an attack until its time is over. It is a separate process on one
// core. Its connections have their own source addresses, like those of other pods.
type attacker struct {
	address      string
	path         string // of a resource
	config       *tls.Config
	ctx          context.Context
	sent         atomic.Int64
	refused      atomic.Int64 // connections that ended with an error, or were not accepted
	count        atomic.Int64 // for unique names
	turn         atomic.Int64
	statusCounts sync.Map // response counts, *atomic.Int64 by status code
}

// workers is the number of concurrent connections of an attack that is not about their number.
const workers = 64

// kind is a kind of attack. Its function uses one connection, and is called again when it returns.
type kind struct {
	// as is the user whose certificate the attacker presents. Default: no certificate.
	as string
	// library is true if a library processes that much input before the server can reject it.
	library bool
	workers int
	run     func(*attacker) error
	// proxied is true if the attack passes through kube-apiserver.
	proxied bool
}

const (
	// mallory is an unprivileged user.
	mallory = "mallory"
	// reader is a user who may get, list and watch.
	reader = "reader"
	// jsonLists and yamlLists need objects.
	jsonLists, yamlLists = "lists", "YAML lists"
)

// attacks are attacks by users who may not write.
var attacks = map[string]kind{
	"aliases": {"", false, workers, func(a *attacker) error { return a.bodies(aliases()) }, false},
	"aliases, known": {mallory, false, workers,
		func(a *attacker) error { return a.bodies(aliases()) }, false},
	"consoles":                {mallory, false, 200, (*attacker).consoles, false},
	"names":                   {mallory, false, 200, (*attacker).names, false},
	"logs":                    {mallory, false, 200, (*attacker).logs, false},
	"impersonation":           {mallory, false, 200, (*attacker).impersonation, false},
	"impersonation at /livez": {"", false, 800, (*attacker).impersonationAtLivez, false},
	"tokens":                  {"", false, workers, (*attacker).tokens, false},
	"tokens over HTTP/2": {"", true, workers, func(a *attacker) error { return a.streams("authorization") },
		false},
	"streams":        {"", true, workers, func(a *attacker) error { return a.streams("") }, false},
	"streams, known": {mallory, true, workers, func(a *attacker) error { return a.streams("") }, false},
	"impersonation in streams": {mallory, true, workers,
		func(a *attacker) error { return a.streams("impersonate-user") }, false},
	"connections":             {"", false, 5000, (*attacker).hold, false},
	"handshakes":              {"", false, 4000, (*attacker).handshakes, false},
	"slow bodies":             {"", false, 2000, (*attacker).slowBody, false},
	"slow bodies, known":      {mallory, false, 2000, (*attacker).slowBody, false},
	"slow bodies of reads":    {mallory, false, 2000, (*attacker).slowBodyOfRead, false},
	"selectors":               {"", false, workers, (*attacker).selectors, false},
	"selectors, known":        {mallory, false, workers, (*attacker).selectors, false},
	"open heads":              {"", false, 2000, (*attacker).openHead, false},
	"open heads in HTTP/2":    {"", true, 2000, (*attacker).openHeadHTTP2, false},
	"frames":                  {"", true, 40, (*attacker).frames, false},
	"long chains":             {longChain, true, 1000, (*attacker).chain, false},
	"unread responses":        {"", true, 1000, (*attacker).unread, false},
	"unread responses, known": {mallory, true, 1000, (*attacker).unread, false},
	"unread documents":        {mallory, false, 100, (*attacker).unreadDocuments, false},
	"small frames":            {"", true, 40, (*attacker).smallFrames, false},
	"watches":                 {reader, true, 500, (*attacker).watches, false},
	jsonLists:                 {reader, false, workers, (*attacker).jsonLists, false},
	yamlLists:                 {reader, false, 8, (*attacker).yamlLists, false},
	"aliases, proxied":        {mallory, true, workers, (*attacker).aliasesProxied, true},
	"watches, proxied":        {reader, true, 40, (*attacker).watches, true},
	"all at once":             {mallory, true, 1000, (*attacker).anything, false},
}

// attack is the main function of the attacker's process.
func attack(name string) error {
	runtime.GOMAXPROCS(1)
	var cpu unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpu); err != nil {
		return err
	}
	for i, found := 0, false; i < 1024; i++ {
		if cpu.IsSet(i) && found {
			cpu.Clear(i)
		}
		found = found || cpu.IsSet(i)
	}
	if err := setAffinity(&cpu); err != nil {
		return err
	}
	chosen, ok := attacks[name]
	if !ok {
		return fmt.Errorf("unknown attack %q", name)
	}
	lasts, err := time.ParseDuration(os.Getenv("ATTACK_FOR"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(os.Getenv("ATTACK_CA"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	a := &attacker{address: os.Getenv("ATTACK_ADDRESS"), path: os.Getenv("ATTACK_PATH"), ctx: ctx,
		config: &tls.Config{RootCAs: x509.NewCertPool(), ServerName: os.Getenv("ATTACK_SERVER_NAME"),
			MinVersion: tls.VersionTLS12}}
	a.config.RootCAs.AppendCertsFromPEM(ca)
	if chosen.as != "" {
		pair, err := tls.LoadX509KeyPair(os.Getenv("ATTACK_CERT"), os.Getenv("ATTACK_KEY"))
		if err != nil {
			return err
		}
		if chosen.as == longChain {
			pair.Certificate = slices.Repeat(pair.Certificate[:1], 250_000/(len(pair.Certificate[0])+3))
		}
		a.config.Certificates = []tls.Certificate{pair}
	}
	var all sync.WaitGroup
	for range chosen.workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := chosen.run(a); err != nil {
					a.refused.Add(1)
					// As often as an attacker with one core can, but not only with refused
					// connections.
					sleep(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	statusCounts := map[int]int64{}
	a.statusCounts.Range(func(status, count any) bool {
		statusCounts[status.(int)] = count.(*atomic.Int64).Load()
		return true
	})
	fmt.Printf("%d requests sent, responses %v, %d connections refused or broken\n", a.sent.Load(), statusCounts,
		a.refused.Load())
	return nil
}

// setAffinity applies to all threads of the process, also to later ones.
func setAffinity(cpu *unix.CPUSet) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		var id int
		if _, err := fmt.Sscan(thread.Name(), &id); err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, cpu); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// dial connects from one of four addresses. The connection is closed when the attack ends.
func (a *attacker) dial(protocol string) (*tls.Conn, error) {
	config := a.config.Clone()
	config.NextProtos = []string{protocol}
	conn, err := a.dialTCP()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(a.ctx, func() { _ = conn.Close() })
	secured := tls.Client(conn, config)
	ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// dialTCP connects from one of four addresses.
func (a *attacker) dialTCP() (net.Conn, error) {
	from := &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.0.%d", 2+a.count.Add(1)%4))}
	return (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).DialContext(a.ctx, "tcp", a.address)
}

// exchange sends requests over HTTP/1.1, one after the other, until the server closes the
// connection.
func (a *attacker) exchange(head func() string, body string) error {
	conn, err := a.dial("http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for a.ctx.Err() == nil {
		a.sent.Add(1)
		go func() { _, _ = io.WriteString(conn, head()+body) }()
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		count, _ := a.statusCounts.LoadOrStore(resp.StatusCode, &atomic.Int64{})
		count.(*atomic.Int64).Add(1)
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		if resp.Close {
			return nil
		}
	}
	return nil
}

// trickle sends the head of a request, and then the bytes of more at intervals.
func (a *attacker) trickle(head, more string) error {
	conn, err := a.dial("http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	a.sent.Add(1)
	if _, err := io.WriteString(conn, head); err != nil {
		return err
	}
	for a.ctx.Err() == nil {
		if _, err := io.WriteString(conn, more); err != nil {
			return err
		}
		sleep(a.ctx, 2*time.Second)
	}
	return nil
}

// http2 connects with the settings, and discards everything that the server sends until it closes
// the connection.
func (a *attacker) http2(settings ...http2.Setting) (framer *http2.Framer, out *bufio.Writer,
	ended <-chan struct{}, err error) {
	conn, err := a.dial("h2")
	if err != nil {
		return nil, nil, nil, err
	}
	out = bufio.NewWriterSize(conn, 64<<10)
	framer = http2.NewFramer(out, conn)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer conn.Close()
		for {
			if _, err := framer.ReadFrame(); err != nil {
				return
			}
		}
	}()
	_, err = out.WriteString(http2.ClientPreface)
	return framer, out, closed, errors.Join(err, framer.WriteSettings(settings...), framer.WriteSettingsAck())
}

// wait returns when the connection or the attack ends.
func (a *attacker) wait(ended <-chan struct{}) {
	select {
	case <-ended:
	case <-a.ctx.Done():
	}
}

// streamOpener opens streams on a connection.
type streamOpener struct {
	framer  *http2.Framer
	block   *bytes.Buffer
	encoder *hpack.Encoder
}

func newStreamOpener(framer *http2.Framer) streamOpener {
	block := new(bytes.Buffer)
	return streamOpener{framer, block, hpack.NewEncoder(block)}
}

// open sends the head of a request. A GET has no body.
func (o streamOpener) open(stream uint32, method, path string, more ...hpack.HeaderField) error {
	o.block.Reset()
	fields := append([]hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "x"},
		{Name: ":path", Value: path}}, more...)
	for _, field := range fields {
		if err := o.encoder.WriteField(field); err != nil {
			return err
		}
	}
	return o.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: o.block.Bytes(),
		EndStream: method == http.MethodGet, EndHeaders: true})
}
