package dbaas

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"

	"git.example.org/platform/dbaas/apis/client/clientset/versioned"
	"git.example.org/platform/dbaas/apis/client/informers/externalversions"
	v1 "git.example.org/platform/dbaas/apis/dbaas/v1"
)

// inventory is the system that has the objects. Each change gets a larger number than all earlier
// ones.
type inventory struct {
	mu      sync.Mutex
	items   map[string]int64
	removed map[string]int64 // when each item was removed
	count   int64
	broken  bool
}

func (i *inventory) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.broken {
		http.Error(w, "broken", http.StatusBadGateway)
		return
	}
	_ = json.NewEncoder(w).Encode(i.items)
}

func (i *inventory) change() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.count++
	name := fmt.Sprintf("item-%d", rand.IntN(40))
	if _, ok := i.items[name]; ok && rand.IntN(3) == 0 {
		delete(i.items, name)
		return
	}
	i.items[name] = i.count
}

func (i *inventory) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

func (i *inventory) now() map[string]int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.items)
}

// seen records what the handlers of an informer see, and reports an older state after a newer one.
type seen struct {
	t      *testing.T
	mu     sync.Mutex
	last   map[string]int64
	events int
}

func (s *seen) saw(obj any) {
	item := obj.(*v1.InventoryItem)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events++
	if last := s.last[item.Name]; item.Spec.Count < last {
		s.t.Errorf("%s: the handler saw %d after %d", item.Name, item.Spec.Count, last)
	}
	s.last[item.Name] = item.Spec.Count
}

func TestInventory(t *testing.T) {
	system := &inventory{items: map[string]int64{"sample": 1}}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: system, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	e := envtest.New(t, envtest.Options{Server: "./cmd/dbaas-apiserver", Network: envtest.EndpointRouting, Servers: 2,
		ServerArgs: []string{"--inventory=" + socket}})

	// kube-apiserver sends each request to any of the endpoints.
	if err := e.SetEndpoints(t.Context(), e.Servers[0]); err != nil {
		t.Fatal(err)
	}
	t.Run("conformance", func(t *testing.T) {
		target, err := e.ConformanceTarget()
		if err != nil {
			t.Fatal(err)
		}
		target.Kubectl = nil // it cannot reach the network of the environment
		if target.Sample, err = conformance.ReadSample("objects/inventoryitem.yaml"); err != nil {
			t.Fatal(err)
		}
		conformance.Run(t, target)
	})

	clients := versioned.NewForConfigOrDie(e.Admin(t))
	items := clients.DbaasV1().InventoryItems("default")
	factory := externalversions.NewSharedInformerFactory(clients, 0)
	informer := factory.Dbaas().V1().InventoryItems().Informer()
	handler := &seen{t: t, last: map[string]int64{}}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: handler.saw,
		UpdateFunc: func(_, obj any) { handler.saw(obj) }}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	kubectl := &follower{}
	converged := func(t *testing.T) {
		t.Helper()
		if kubectl.runs > 0 {
			e.Eventually(t, "what kubectl has printed to equal the source", envtest.WaitTimeout, func(context.Context) error {
				if diff := cmp.Diff(system.now(), kubectl.now()); diff != "" {
					return errors.New("(-source +kubectl):\n" + diff)
				}
				return nil
			})
		}
		e.Eventually(t, "the informer to equal the source", envtest.WaitTimeout, func(context.Context) error {
			got := map[string]int64{}
			for _, obj := range informer.GetStore().List() {
				got[obj.(*v1.InventoryItem).Name] = obj.(*v1.InventoryItem).Spec.Count
			}
			if diff := cmp.Diff(system.now(), got); diff != "" {
				return errors.New("(-source +informer):\n" + diff)
			}
			return nil
		})
	}
	converged(t)
	sample, err := items.Get(t.Context(), "sample", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("kubectl", func(t *testing.T) { kubectlWatch(t, e, system) })

	kubectl.start(t, e)
	converged(t)
	t.Run("replicas", func(t *testing.T) {
		stop := make(chan struct{})
		var changes sync.WaitGroup
		changes.Go(func() {
			for range 1000 {
				system.change()
				time.Sleep(20 * time.Millisecond) // paces the load
			}
			close(stop)
		})
		for i := range 20 {
			from, to := e.Servers[i%2], e.Servers[(i+1)%2]
			if err := e.SetEndpoints(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			if err := e.CrashServer(t.Context(), from); err != nil {
				t.Fatal(err)
			}
		}
		<-stop
		changes.Wait()
		converged(t)
		t.Logf("%d events, %d runs of kubectl", handler.events, kubectl.runs)
	})

	t.Run("failure", func(t *testing.T) {
		before := system.now()
		system.set(func() { system.broken = true })
		e.Eventually(t, "503", envtest.WaitTimeout, func(ctx context.Context) error {
			list, err := items.List(ctx, metav1.ListOptions{})
			if err == nil {
				if len(list.Items) != len(before) {
					t.Fatalf("a list while the source fails has %d objects, want %d or 503", len(list.Items), len(before))
				}
				return errors.New("the copy is still served")
			}
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "inventory: 502 Bad Gateway") {
				return fmt.Errorf("got %w, want 503 with the cause", err)
			}
			return nil
		})
		if got := len(informer.GetStore().List()); got != len(before) {
			t.Errorf("the informer has %d objects, want still %d", got, len(before))
		}
		system.set(func() { system.broken = false })
		for range 100 {
			system.change()
		}
		converged(t)
	})

	again, err := items.Get(t.Context(), "sample", metav1.GetOptions{})
	if err != nil || again.UID != sample.UID {
		t.Errorf("after restarts of both servers: got the UID %s, %v, want %s", again.UID, err, sample.UID)
	}
}

// follower is kubectl get -w, which runs again when it ends, as it does when a server stops.
type follower struct {
	mu    sync.Mutex
	items map[string]int64
	runs  int
}

func (f *follower) start(t *testing.T, e *envtest.Environment) {
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	f.runs = 1
	running.Go(func() {
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, e.Binary("kubectl"), "--kubeconfig="+kubeconfig, "get", "inventoryitems", "-w",
				"--no-headers", "--output-watch-events")
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = e.StartCommand(cmd)
			}
			if err != nil {
				t.Error(err)
				return
			}
			f.follow(bufio.NewScanner(out))
			_ = cmd.Wait() // it fails while the source does
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// follow records what kubectl prints: the event, the name, the count and the age.
func (f *follower) follow(lines *bufio.Scanner) {
	f.mu.Lock()
	f.items = map[string]int64{}
	f.runs++
	f.mu.Unlock()
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		count, _ := strconv.ParseInt(fields[2], 10, 64)
		f.mu.Lock()
		if f.items[fields[1]] = count; fields[0] == "DELETED" {
			delete(f.items, fields[1])
		}
		f.mu.Unlock()
	}
}

func (f *follower) now() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.items)
}

// kubectlWatch checks that kubectl get -w prints the changes of the source.
func kubectlWatch(t *testing.T, e *envtest.Environment, system *inventory) {
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), envtest.WaitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.Binary("kubectl"), "--kubeconfig="+kubeconfig, "get", "inventoryitems", "-w", "--no-headers",
		"--output-watch-events")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartCommand(cmd); err != nil {
		t.Fatal(err)
	}
	var got []string
	want := []string{"ADDED sample 1", "ADDED kubectl 7", "MODIFIED kubectl 8", "DELETED kubectl 8"}
	steps := []func(){
		func() { system.set(func() { system.items["kubectl"] = 7 }) },
		func() { system.set(func() { system.items["kubectl"] = 8 }) },
		func() { system.set(func() { delete(system.items, "kubectl") }) },
	}
	lines := bufio.NewScanner(out)
	for len(got) < len(want) && lines.Scan() {
		fields := strings.Fields(lines.Text())
		got = append(got, strings.Join(slices.Delete(fields, len(fields)-1, len(fields)), " ")) // without the age
		if len(steps) > 0 {
			steps[0]()
			steps = steps[1:]
		}
	}
	cancel()
	_ = cmd.Wait()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what kubectl printed (-want +got):\n%s", diff)
	}
}
