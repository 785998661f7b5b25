package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func sandbox(id string) Sandbox {
	return Sandbox{
		ID: id, Phase: Creating, CreatedAt: time.Now().UTC(),
		Config: PodConfig{Value: &runtime.PodSandboxConfig{
			Metadata: &runtime.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: "u"},
			Labels:   map[string]string{"a": "ä\n\"<>&"},
		}},
	}
}

func open(t *testing.T, dir string) *Store[Sandbox] {
	t.Helper()
	s, err := Open(dir, quiet(), CheckSandbox, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRecordsSurviveAReopen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	in := sandbox("aa11")
	if err := s.Create("aa11", in); err != nil {
		t.Fatal(err)
	}
	if err := s.Create("aa11", in); !errdefs.IsAlreadyExists(err) {
		t.Fatalf("second create: %v", err)
	}
	if _, err := s.Update("aa11", func(r Sandbox) (Sandbox, error) { r.Phase = Ready; return r, nil }); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dir).Get("aa11")
	if err != nil {
		t.Fatal(err)
	}
	if got.Phase != Ready || !proto.Equal(got.Config.Value, in.Config.Value) || !got.CreatedAt.Equal(in.CreatedAt) {
		t.Fatalf("read back %+v", got)
	}
	if err := s.Delete("aa11"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("aa11"); err != nil {
		t.Fatalf("second delete: %v", err)
	}
	if ids := open(t, dir).IDs(); len(ids) != 0 {
		t.Fatalf("left: %v", ids)
	}
}

// What Select returns is sorted, and is what was asked for, while records change and are removed.
func TestSelectWhileRecordsChange(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 50 {
		if err := s.Create(fmt.Sprintf("%04x", i), sandbox(fmt.Sprintf("%04x", i))); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() {
		var err error
		for i := range 20_000 {
			_, e := s.Amend(fmt.Sprintf("%04x", i%49), func(r Sandbox) (Sandbox, error) {
				r.Phase = []Phase{Ready, NotReady}[i/49%2]
				return r, nil
			})
			err = errors.Join(err, e)
		}
		done <- errors.Join(err, s.Delete("0031"))
	}()
	ready := func(r *Sandbox) bool { return r.Phase == Ready }
	for {
		for _, recs := range [][]Sandbox{s.Select(ready), s.List()} {
			if !slices.IsSortedFunc(recs, func(a, b Sandbox) int { return strings.Compare(a.ID, b.ID) }) {
				t.Fatal("records are not sorted")
			}
		}
		for _, r := range s.Select(ready) {
			if !ready(&r) {
				t.Fatalf("record %s was not asked for", r.ID)
			}
		}
		select {
		case err := <-done:
			if all := s.List(); err != nil || len(all) != 49 {
				t.Fatalf("%d records, %v", len(all), err)
			}
			return
		default:
		}
	}
}

func TestUpdateLeavesTheRecordAloneOnError(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if _, err := s.Update("aa", func(r Sandbox) (Sandbox, error) { r.Phase = Ready; return r, boom }); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	// The disk refuses: the folder is gone.
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update("aa", func(r Sandbox) (Sandbox, error) { r.Phase = Ready; return r, nil }); err == nil {
		t.Fatal("write into a missing folder succeeded")
	}
	if got, _ := s.Get("aa"); got.Phase != Creating {
		t.Fatalf("phase is %q", got.Phase)
	}
	if _, err := s.Update("bb", func(r Sandbox) (Sandbox, error) { return r, nil }); !errdefs.IsNotFound(err) {
		t.Fatal(err)
	}
}

// A crash may leave a temporary file at any length, beside the old version; a disk may damage a
// file. Neither keeps the server from starting, and neither touches the other records.
func TestCrashAndDamage(t *testing.T) {
	for name, content := range map[string]string{
		"no record":    "}",
		"broken":       `{"version":1,"record":{"id":"bad",pha}}`,
		"broken lines": "{\n{\n{",
		"no version":   `{"version":0,"record":{}}`,
		"other id":     `{"version":1,"record":{"id":"good","phase":"ready"}}`,
		"no metadata":  `{"version":1,"record":{"id":"bad","phase":"ready","config":{}}}`,
		"null config":  `{"version":1,"record":{"id":"bad","phase":"ready","config":null}}`,
		"phase":        `{"version":1,"record":{"id":"bad","phase":"dancing","config":{"metadata":{"name":"x"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			before := open(t, dir)
			if err := before.Create("good", sandbox("good")); err != nil {
				t.Fatal(err)
			}
			for file, data := range map[string]string{
				"bad.json":         content,
				".good.json.tmp-1": `{"version":1,"reco`,
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, dir)
			if ids := s.IDs(); len(ids) != 1 || ids[0] != "good" {
				t.Fatalf("ids: %v", ids)
			}
			var left []string
			des, _ := os.ReadDir(dir)
			for _, de := range des {
				left = append(left, de.Name())
			}
			if got := strings.Join(left, " "); got != "bad.json.damaged "+filepath.Base(before.path("good")) {
				t.Fatalf("folder holds %s", got)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "bad.json.damaged")); err != nil || string(got) != content {
				t.Fatalf("damaged file was changed: %q, %v", got, err)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	s := open(t, t.TempDir())
	for _, id := range []string{"abc1", "abc2", "abd"} {
		if err := s.Create(id, sandbox(id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		in, want string
		class    func(error) bool
	}{
		{"abc1", "abc1", nil}, {"abd", "abd", nil}, {"abd0", "", errdefs.IsNotFound},
		{"abc", "", errdefs.IsInvalidArgument}, {"", "", errdefs.IsNotFound}, {"ab", "", errdefs.IsInvalidArgument},
	} {
		got, err := s.Resolve(c.in)
		if got != c.want || (c.class == nil) != (err == nil) || (c.class != nil && !c.class(err)) {
			t.Errorf("Resolve(%q) = %q, %v", c.in, got, err)
		}
	}
}

func TestUpdatesOfOneRecordDoNotInterleave(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			s.Update("aa", func(r Sandbox) (Sandbox, error) { r.Handler += "x"; return r, nil })
		})
	}
	wg.Wait()
	if got, _ := s.Get("aa"); len(got.Handler) != 20 {
		t.Fatalf("%d of 20 updates stand", len(got.Handler))
	}
}

func TestNames(t *testing.T) {
	ctx := context.Background()
	n := NewNames()
	ok := func(id string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return id, nil }
	}
	if _, err := n.Create(ctx, "pod", "x", func(context.Context) (string, error) { return "", errors.New("no") }); err == nil {
		t.Fatal("no error")
	}
	if id, err := n.Create(ctx, "pod", "x", ok("1")); id != "1" || err != nil {
		t.Fatalf("after a failed request: %q, %v", id, err)
	}
	if _, err := n.Create(ctx, "pod", "x", ok("2")); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), `"1"`) {
		t.Fatalf("taken name: %v", err)
	}
	if n.Hold("pod", "9") || !n.Hold("pod", "1") {
		t.Fatal("hold")
	}
	n.Release("pod", "9")
	if n.Hold("pod", "9") {
		t.Fatal("a stranger released the name")
	}
	n.Release("pod", "1")
	if !n.Hold("pod", "9") {
		t.Fatal("not released")
	}
	// An object may be seen, and removed, before the request that made it has ended.
	if _, err := n.Create(ctx, "short", "x", func(context.Context) (string, error) { n.Release("short", "1"); return "1", nil }); err != nil {
		t.Fatal(err)
	}
	if !n.Hold("short", "2") {
		t.Fatal("the name of an object that is gone stays taken")
	}
}

func TestRetryJoinsARunningRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNames()
		first, giveUp := context.WithCancel(context.Background())
		finish := make(chan struct{})
		answers := make(chan string, 3)
		ask := func(ctx context.Context, id string) {
			got, _ := n.Create(ctx, "pod", "same", func(ctx context.Context) (string, error) {
				select {
				case <-ctx.Done():
					return "", fmt.Errorf("step: %w", ctx.Err())
				case <-finish:
					return id, nil
				}
			})
			answers <- got
		}
		go ask(first, "1")
		synctest.Wait()
		if _, err := n.Create(context.Background(), "pod", "other", nil); !errdefs.IsAlreadyExists(err) {
			t.Fatalf("another request of the same name: %v", err)
		}
		go ask(context.Background(), "2")
		synctest.Wait()
		giveUp() // the first client is gone; its retry takes over
		if got := <-answers; got != "" {
			t.Fatalf("a cancelled request was answered with %q", got)
		}
		synctest.Wait()
		go ask(context.Background(), "3")
		synctest.Wait()
		close(finish)
		if a, b := <-answers, <-answers; a != "2" || b != "2" {
			t.Fatalf("answers %q and %q, want the second request's twice", a, b)
		}
	})
}

// The id of a pod's next container tells whose it is, and is found by its first digits among all
// others.
func TestDrawID(t *testing.T) {
	pods := [2]string{}
	for i := range pods {
		pods[i] = NewID()
	}
	first, second := DrawID(pods[0]), DrawID(pods[0])
	if len(first) != len(pods[0]) || first[:12] == second[:12] || first[:12] == pods[0][:12] {
		t.Errorf("ids %q and %q of pod %q", first, second, pods[0])
	}
	for id, want := range map[string]bool{first: true, second: true, pods[0]: false, pods[1]: false, "": false, first[1:]: false} {
		if got := IsDrawn(id, pods[0]); got != want {
			t.Errorf("%q was drawn for %q: %t", id, pods[0], got)
		}
	}
	if IsDrawn(first, pods[1]) {
		t.Errorf("%q was drawn for %q", first, pods[1])
	}
}
