// Judges the histories of the harness's register workload with porcupine, a checker of another project. The script
// `judge` builds and runs it; jepsen/README.md says what is judged.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// The harness's exit codes.
const (
	valid   = 0
	broken  = 1
	unknown = 2
	failed  = 3
)

var words = map[int]string{valid: "VALID", broken: "INVALID", unknown: "UNKNOWN", failed: "FAILED"}

type counts struct {
	znodes, operations, writes, reads, unknown, marks int
}

type verdict struct {
	code   int
	counts counts
	whys   []string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "drive" {
		os.Exit(drive(os.Args[2:]))
	}
	timeout := flag.Duration("timeout", 30*time.Second, "what a znode may take before it is unknown")
	linearizable := flag.Bool("linearizable-reads", false, "no read may be old (servers with lockkeeper.reads=linearizable)")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: jepsen/porcupine/judge [--timeout 30s] [--linearizable-reads] RUN-DIRECTORY...")
		flag.PrintDefaults()
	}
	flag.CommandLine.Init("judge", flag.ContinueOnError)
	if flag.CommandLine.Parse(os.Args[1:]) != nil {
		os.Exit(failed)
	}
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(failed)
	}
	worst := valid
	for _, directory := range flag.Args() {
		began := time.Now()
		v := judgeRun(directory, *linearizable, *timeout)
		c := v.counts
		fmt.Printf("%-7s %s: %d znodes, %d operations (%d writes, %d of them unknown; %d reads), %d writes elsewhere, %.1f s\n",
			words[v.code], filepath.Base(directory), c.znodes, c.operations, c.writes, c.unknown, c.reads, c.marks,
			time.Since(began).Seconds())
		for _, why := range v.whys {
			fmt.Println("       ", why)
		}
		worst = worse(worst, v.code)
	}
	os.Exit(worst)
}

// A broken promise is worse than a failure, and that is worse than not knowing.
func worse(a, b int) int {
	order := []int{valid, unknown, failed, broken}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

func judgeRun(directory string, linearizable bool, timeout time.Duration) verdict {
	refuse := func(err error) verdict { return verdict{code: failed, whys: []string{err.Error()}} }
	text, err := os.ReadFile(filepath.Join(directory, "test.json"))
	if err != nil {
		return refuse(err)
	}
	var test struct{ Workload string }
	if err := json.Unmarshal(text, &test); err != nil {
		return refuse(err)
	}
	if test.Workload != "register" {
		return refuse(fmt.Errorf("only runs of the workload register can be judged, this is %q", test.Workload))
	}
	file, err := os.Open(filepath.Join(directory, "history.jsonl"))
	if err != nil {
		return refuse(err)
	}
	defer file.Close()
	all, err := parse(file)
	if err != nil {
		return refuse(err)
	}
	return judge(all, linearizable, timeout)
}

func judge(all []*request, linearizable bool, timeout time.Duration) verdict {
	paths, err := operations(all, linearizable)
	if err != nil {
		return verdict{code: failed, whys: []string{err.Error()}}
	}
	return judgeStories(paths, timeout)
}

func judgeStories(paths story, timeout time.Duration) verdict {
	v := verdict{code: valid, counts: count(paths)}
	if v.counts.writes == v.counts.unknown || v.counts.reads == 0 {
		return verdict{code: unknown, counts: v.counts, whys: []string{"no write or no read was answered"}}
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		result, info := check(paths[path], timeout)
		switch result {
		case porcupine.Illegal:
			v.code = worse(v.code, broken)
			v.whys = append(v.whys, why(path, paths[path], info))
		case porcupine.Unknown:
			v.code = worse(v.code, unknown)
			v.whys = append(v.whys, fmt.Sprintf("%s: %d operations took longer than %s", path, len(paths[path]), timeout))
		}
	}
	return v
}

// An order without the unknown writes that no read has seen is an order with them: they had no effect. That is
// tried first, for they are what makes a search long.
func check(all []porcupine.Operation, timeout time.Duration) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	read := map[string]bool{}
	for _, op := range all {
		read[op.Output.(output).data] = true
	}
	fewer := slices.DeleteFunc(slices.Clone(all), func(op porcupine.Operation) bool {
		return op.Output.(output).unknown && (op.Input.(input).kind == del || !read[op.Input.(input).data])
	})
	if len(fewer) < len(all) {
		if result, info := porcupine.CheckOperationsVerbose(model(), fewer, timeout); result == porcupine.Ok {
			return result, info
		}
	}
	return porcupine.CheckOperationsVerbose(model(), all, timeout)
}

func count(paths story) counts {
	c := counts{znodes: len(paths)}
	for _, all := range paths {
		for _, op := range all {
			switch op.Input.(input).kind {
			case mark:
				c.marks++
				continue
			case end:
				continue
			case create, set, del:
				c.writes++
			default:
				c.reads++
			}
			c.operations++
			if op.Output.(output).unknown {
				c.unknown++
			}
		}
	}
	return c
}

// Names the operation that returned first among those that the longest order does not contain.
func why(path string, all []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	inside := map[int64]bool{}
	for _, op := range longest {
		inside[op.Return] = true
	}
	stuck := porcupine.Operation{Return: math.MaxInt64}
	for _, op := range all {
		if op.Return < stuck.Return && !inside[op.Return] {
			stuck = op
		}
	}
	return fmt.Sprintf("%s: no order explains all answers; %d of %d operations are in the longest, which lacks %v -> %v (index %d to %d)",
		path, len(longest), len(all), stuck.Input, stuck.Output, stuck.Call, stuck.Return)
}
