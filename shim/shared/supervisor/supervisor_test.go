package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is the supervisor and the shim too, by an argument.
const (
	faceSupervisor = "be-the-supervisor"
	faceShim       = "be-the-shim"
)

func TestMain(m *testing.M) {
	switch os.Args[len(os.Args)-1] {
	case faceSupervisor:
		beSupervisor()
	case faceShim:
		beShim()
	default:
		os.Exit(m.Run())
	}
}

// patience bounds what is waited for.
const patience = time.Minute

// beSupervisor runs shims that are told what to do over descriptor 3 and answer on descriptor 4.
func beSupervisor() {
	orders, answers := os.NewFile(3, "orders"), os.NewFile(4, "answers")
	err := Run(Options{
		Shim: func(link *os.File) *exec.Cmd {
			cmd := exec.Command("/proc/self/exe", faceShim)
			cmd.ExtraFiles = []*os.File{link, orders, answers}
			cmd.Stderr = os.Stderr
			return cmd
		},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beShim does what it is told, one line each, and says how it went, one line each.
func beShim() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	link, err := Open(os.NewFile(3, "link"))
	if err != nil {
		panic(err)
	}
	orders, answers := bufio.NewReader(os.NewFile(4, "orders")), os.NewFile(5, "answers")
	fmt.Fprintln(answers, "shim", os.Getpid())
	for {
		line, err := orders.ReadString('\n')
		if err != nil {
			os.Exit(0)
		}
		fmt.Fprintln(answers, obey(link, strings.Fields(line)))
	}
}

func obey(link *Link, order []string) string {
	number := func() int { n, _ := strconv.Atoi(order[1]); return n }
	switch order[0] {
	case "start": // a process of this script that writes to a pipe, whose other end is kept
		r, w, err := os.Pipe()
		if err != nil {
			return err.Error()
		}
		cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(order[1], "_", " "))
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			return err.Error()
		}
		w.Close()
		if err := link.Keep("pipe", []byte(strconv.Itoa(cmd.Process.Pid)), r); err != nil {
			return err.Error()
		}
		if err := link.Watch(cmd.Process.Pid); err != nil {
			return err.Error()
		}
		return strconv.Itoa(cmd.Process.Pid)
	case "left":
		var all []string
		for _, k := range link.Left() {
			all = append(all, fmt.Sprintf("%s=%s+%d", k.Key, k.Note, len(k.Files)))
		}
		return strings.Join(all, ",")
	case "read":
		text, err := io.ReadAll(link.Left()[0].Files[0])
		return fmt.Sprintf("%q %v", text, err)
	case "exit":
		e, ok := <-link.Exit(number())
		text, _ := json.Marshal(e.Code)
		return fmt.Sprintf("%s %t %t", text, ok, time.Since(e.At) < time.Hour)
	case "forget":
		return fmt.Sprint(link.Forget(number()))
	case "drop":
		return fmt.Sprint(link.Drop(order[1]))
	case "end":
		os.Exit(number())
	}
	return "unknown order"
}

// family is a supervisor and its shims.
type family struct {
	t       *testing.T
	cmd     *exec.Cmd
	orders  *os.File
	from    *os.File
	answers *bufio.Reader
	shim    int
}

func newFamily(t *testing.T) *family {
	t.Helper()
	orders, toThem := pipe(t)
	fromThem, answers := pipe(t)
	f := &family{t: t, cmd: exec.Command("/proc/self/exe", faceSupervisor), orders: toThem, from: fromThem, answers: bufio.NewReader(fromThem)}
	f.cmd.ExtraFiles = []*os.File{orders, answers}
	f.cmd.Stderr = os.Stderr
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	orders.Close()
	answers.Close()
	t.Cleanup(func() {
		toThem.Close() // the shim ends, and the supervisor with it
		stuck := time.AfterFunc(patience, func() {
			t.Error("the supervisor does not end")
			_ = f.cmd.Process.Kill()
		})
		defer stuck.Stop()
		_ = f.cmd.Wait()
	})
	f.born()
	return f
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func (f *family) line() string {
	f.t.Helper()
	if err := f.from.SetReadDeadline(time.Now().Add(patience)); err != nil {
		f.t.Fatal(err)
	}
	line, err := f.answers.ReadString('\n')
	if err != nil {
		f.t.Fatal("the shims are gone:", err)
	}
	return strings.TrimSuffix(line, "\n")
}

// born waits for a shim.
func (f *family) born() {
	f.t.Helper()
	if _, err := fmt.Sscanf(f.line(), "shim %d", &f.shim); err != nil {
		f.t.Fatal(err)
	}
}

func (f *family) tell(order string) string {
	f.t.Helper()
	fmt.Fprintln(f.orders, order)
	return f.line()
}

func (f *family) kill() {
	f.t.Helper()
	if err := syscall.Kill(f.shim, syscall.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
	f.born()
}

func TestSuccessorGetsFilesAndExits(t *testing.T) {
	f := newFamily(t)
	gate, opener := pipe(t)
	pid := f.tell(fmt.Sprintf("start echo_before;read_x</proc/%d/fd/%d;echo_after;exit_7", os.Getpid(), gate.Fd()))
	if left := f.tell("left"); left != "" {
		t.Errorf("the first shim was left %q", left)
	}
	for range 2 { // a successor's successor gets the same
		f.kill()
		if left, want := f.tell("left"), "pipe="+pid+"+1"; left != want {
			t.Fatalf("left %q, want %q", left, want)
		}
	}
	fmt.Fprintln(opener, "go")
	if text, want := f.tell("read"), `"before\nafter\n" <nil>`; text != want {
		t.Errorf("read %s, want %s", text, want)
	}
	if exit := f.tell("exit " + pid); exit != "7 true true" {
		t.Errorf("exit %s", exit)
	}
	f.kill() // before it has recorded the exit
	if exit := f.tell("exit " + pid); exit != "7 true true" {
		t.Errorf("exit %s", exit)
	}
	if err := f.tell("forget "+pid) + f.tell("drop pipe"); err != "<nil><nil>" {
		t.Error(err)
	}
	f.kill()
	if left := f.tell("left"); left != "" {
		t.Errorf("left %q", left)
	}
}

// TestExitWhileThereIsNoShim ends a process while its shim is stopped, so that nobody has reaped it
// when the shim dies.
func TestExitWhileThereIsNoShim(t *testing.T) {
	f := newFamily(t)
	pid := f.tell("start exec_sleep_1000")
	n, _ := strconv.Atoi(pid)
	if err := syscall.Kill(f.shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); !strings.Contains(status(t, n), "zombie"); time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatal("the process does not end")
		}
	}
	f.kill()
	if exit := f.tell("exit " + pid); exit != "143 true true" {
		t.Errorf("exit %s", exit)
	}
}

func status(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSupervisorEndsWithAShimThatWasToldTo(t *testing.T) {
	f := newFamily(t)
	fmt.Fprintln(f.orders, "end 3")
	f.born() // it was not
	fmt.Fprintln(f.orders, "end 0")
	if err := f.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestMessagesThatDoNotFit(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	conn, err := connection(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := &Link{conn: conn}
	if err := l.Keep("k", make([]byte, maxMessage)); err == nil {
		t.Error("a note that is too long was sent")
	}
	if err := l.Keep("k", nil, make([]*os.File, maxFiles+1)...); err == nil {
		t.Error("too many files were sent")
	}
}

func TestOpenWithoutASupervisor(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	if _, err := Open(theirs); err == nil {
		t.Error("nobody is there, and the link is open")
	}
}

// TestLastWordOfOneWhoDidNotListen has a shim die that had not taken all that it was told.
func TestLastWordOfOneWhoDidNotListen(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	supervisor, shim := connected(t, ours), connected(t, theirs)
	for _, err := range []error{send(shim, message{Keep: "k"}), send(supervisor, message{Ready: true}), shim.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	in := newReceiver(supervisor)
	if m, err := in.next(); err != nil || m.Keep != "k" {
		t.Errorf("got %+v, %v", m, err)
	}
	if m, err := in.next(); !errors.Is(err, io.EOF) {
		t.Errorf("then %+v, %v", m, err)
	}
}

func connected(t *testing.T, f *os.File) *net.UnixConn {
	t.Helper()
	conn, err := connection(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
