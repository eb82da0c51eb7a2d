package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A history in the harness's format, written by hand.
type writer struct {
	text  strings.Builder
	index int
	xid   map[int]int
}

func (w *writer) line(format string, words ...any) {
	fmt.Fprintf(&w.text, "{\"index\":%d,%s}\n", w.index, fmt.Sprintf(format, words...))
	w.index++
}

// A process is a session, and has one request open at a time.
func (w *writer) asks(process int, f, value string) {
	if w.xid == nil {
		w.xid = map[int]int{}
	}
	w.xid[process]++
	w.line(`"process":%d,"f":"%s","xid":%d,"type":"invoke","value":{"path":%s},"node":"n1","session":"0x%d"`,
		process, f, w.xid[process], value, process)
}

func (w *writer) told(process int, f, answer string) {
	w.line(`"process":%d,"f":"%s","xid":%d,%s`, process, f, w.xid[process], answer)
}

func (w *writer) does(process int, f, value, answer string) {
	w.asks(process, f, value)
	w.told(process, f, answer)
}

const (
	k0     = `"/register/k0"`
	k1     = `"/register/k1"`
	noNode = `"type":"fail","zxid":9,"error":"NoNode"`
	lost   = `"type":"info","error":"unexpected end of file"`
	done   = `"type":"ok","zxid":9`
)

func stat(version int) string {
	return fmt.Sprintf(`"type":"ok","zxid":9,"value":{"version":%d}`, version)
}

func created() string {
	return `"type":"ok","zxid":9,"value":{"path":"","stat":{"version":0}}`
}

func holds(data string, version int) string {
	return fmt.Sprintf(`"type":"ok","zxid":9,"value":{"data":"%s","stat":{"version":%d}}`, data, version)
}

func data(path, data string) string {
	return fmt.Sprintf(`%s,"data":"%s","mode":"persistent","version":-1`, path, data)
}

// Process 1 creates k0 and writes it once.
func begun() *writer {
	w := &writer{}
	w.does(1, "create2", data(k0, "a"), created())
	w.does(1, "setData", data(k0, "b"), stat(1))
	return w
}

func (w *writer) must(t *testing.T, code int, linearizableReads bool) {
	t.Helper()
	all, err := parse(strings.NewReader(w.text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if v := judge(all, linearizableReads, 10*time.Second); v.code != code {
		t.Errorf("%s instead of %s: %v", words[v.code], words[code], v.whys)
	}
}

func TestAReadOfAnotherSessionMayBeOldUnlessReadsAreLinearizable(t *testing.T) {
	w := begun()
	w.does(2, "getData", k0, holds("a", 0))
	w.must(t, valid, false)
	w.must(t, broken, true)
}

func TestAStaleReadOfOnesOwnWriteIsRefused(t *testing.T) {
	w := begun()
	w.does(1, "getData", k0, holds("a", 0))
	w.must(t, broken, false)
}

func TestASessionThatReadsBackInTimeIsRefused(t *testing.T) {
	w := begun()
	w.does(2, "getData", k0, holds("b", 1))
	w.does(2, "getData", k0, holds("a", 0))
	w.must(t, broken, false)
}

func TestAStaleReadBehindASyncIsRefused(t *testing.T) {
	w := begun()
	w.does(2, "sync", k0, done)
	w.does(2, "getData", k0, holds("a", 0))
	w.must(t, broken, false)
}

func TestAStaleReadBehindAWriteElsewhereIsRefused(t *testing.T) {
	w := begun()
	w.does(2, "create2", data(k1, "c"), created())
	w.does(2, "getData", k0, holds("a", 0))
	w.must(t, broken, false)
}

func TestALostWriteIsRefused(t *testing.T) {
	w := begun()
	w.does(2, "setData", data(k0, "c"), stat(1))
	w.does(1, "getData", k0, holds("b", 1))
	w.must(t, broken, false)
}

func TestAWriteThatNoVersionCountsIsRefused(t *testing.T) {
	w := begun()
	w.does(2, "setData", data(k0, "c"), stat(3))
	w.does(2, "getData", k0, holds("c", 3))
	w.must(t, broken, false)
}

func TestAZnodeThatIsMissingInTheListAtTheEndIsRefused(t *testing.T) {
	for _, children := range []string{`["k0"]`, `[]`} {
		w := begun()
		w.does(2, "getData", k0, holds("b", 1))
		w.does(2, "sync", `"/register"`, done)
		w.does(2, "getChildren2", `"/register"`, `"type":"ok","zxid":9,"value":{"children":`+children+`}`)
		w.must(t, map[string]int{`["k0"]`: valid, `[]`: broken}[children], false)
	}
}

func TestAReadOfWhatNobodyWroteIsRefused(t *testing.T) {
	w := begun()
	w.does(2, "getData", k0, holds("z", 1))
	w.must(t, broken, false)
}

func TestAnUnknownWriteMayTakeEffectLaterOrNever(t *testing.T) {
	for _, later := range []string{holds("b", 1), holds("c", 2)} {
		w := begun()
		w.does(2, "setData", data(k0, "c"), lost)
		w.does(1, "getData", k0, holds("b", 1))
		w.does(1, "getData", k0, later)
		w.must(t, valid, true)
	}
}

func TestAnUnknownWriteThatWasSeenCannotBeUndone(t *testing.T) {
	w := begun()
	w.does(2, "setData", data(k0, "c"), lost)
	w.does(1, "getData", k0, holds("c", 2))
	w.does(1, "getData", k0, holds("b", 1))
	w.must(t, broken, false)
}

func TestAWriteThatRunsMayBeSeenAndNotSeen(t *testing.T) {
	w := begun()
	w.asks(2, "delete", k0+`,"version":-1`)
	w.does(1, "getData", k0, holds("b", 1))
	w.does(3, "getData", k0, noNode)
	w.told(2, "delete", done)
	w.must(t, valid, true)
	w.does(1, "getData", k0, holds("b", 1))
	w.must(t, broken, true)
}

func TestARequestThatWasNeverSentIsLeftOut(t *testing.T) {
	w := begun()
	w.does(2, "setData", data(k0, "c"), `"type":"fail","error":"not connected"`)
	w.does(1, "getData", k0, holds("b", 1))
	w.must(t, valid, true)
	w.does(1, "getData", k0, holds("c", 2))
	w.must(t, broken, false)
}

func TestAHistoryThatSaysNothingIsUnknown(t *testing.T) {
	w := &writer{}
	w.does(1, "create2", data(k0, "a"), lost)
	w.must(t, unknown, false)
}

func TestARequestThatIsNotOfTheWorkloadFails(t *testing.T) {
	w := begun()
	w.does(1, "multi", k0, done)
	w.must(t, failed, false)
}

// JUDGE_RUNS="DIRECTORY DIRECTORY..." go test -run Changed -v: changes one answer of a real run at a time.
func TestChangedRunsAreRefused(t *testing.T) {
	runs := strings.Fields(os.Getenv("JUDGE_RUNS"))
	if len(runs) == 0 {
		t.Skip("JUDGE_RUNS names no runs")
	}
	for _, run := range runs {
		text, err := os.ReadFile(filepath.Join(run, "history.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func([]*request, *rand.Rand) bool{"stale read": staleRead, "lost write": lostWrite} {
			refused, changed := 0, 0
			for seed := int64(0); seed < 20; seed++ {
				all, err := parse(strings.NewReader(string(text)))
				if err != nil {
					t.Fatal(err)
				}
				if !change(all, rand.New(rand.NewSource(seed))) {
					continue
				}
				changed++
				if v := judge(all, false, 10*time.Second); v.code == broken {
					refused++
				} else {
					t.Logf("seed %d: %s: %v", seed, words[v.code], v.whys)
				}
			}
			t.Logf("%s: %s: %d of %d refused", filepath.Base(run), name, refused, changed)
			if changed == 0 || refused < changed {
				t.Errorf("%s: %s: only %d of %d refused", filepath.Base(run), name, refused, changed)
			}
		}
	}
}

func answered(r *request, f string) bool {
	return r.invoked.F == f && r.ended != nil && r.ended.Type == "ok" && strings.HasPrefix(r.asked.Path, root+"/")
}

// Gives a read the answer of an earlier one, though its session has seen another value between them.
func staleRead(all []*request, random *rand.Rand) bool {
	reads := slices.DeleteFunc(slices.Clone(all), func(r *request) bool { return !answered(r, "getData") })
	for range 1000 {
		at := random.Intn(len(reads))
		last := reads[at]
		var between *request
		for _, before := range slices.Backward(reads[:at]) {
			if before.asked.Path != last.asked.Path || before.invoked.Session != last.invoked.Session {
				continue
			}
			if between != nil && string(before.ended.Value) != string(between.ended.Value) {
				last.ended.Value = before.ended.Value
				return true
			}
			between = before
		}
	}
	return false
}

// Turns the refusal of a write into a success, so that a write that was acknowledged left no trace.
func lostWrite(all []*request, random *rand.Rand) bool {
	refused := slices.DeleteFunc(slices.Clone(all), func(r *request) bool {
		return r.invoked.F != "setData" || r.ended == nil || string(r.ended.Error) != `"BadVersion"`
	})
	if len(refused) == 0 {
		return false
	}
	r := refused[random.Intn(len(refused))]
	r.ended.Type, r.ended.Error = "ok", nil
	r.ended.Value = json.RawMessage(fmt.Sprintf(`{"version":%d}`, r.asked.Version+1))
	return true
}
