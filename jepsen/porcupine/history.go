// The history: lines of JSON as the harness writes them, turned into operations on each znode.
//
// An operation with unknown outcome is open to the end of the history and beyond: it may take effect at any
// time, or never. A request that never left its client is left out.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

const root = "/register"

type line struct {
	Process json.RawMessage
	F       string
	Xid     int64
	Index   int64
	Type    string
	Zxid    *int64
	Value   json.RawMessage
	Error   json.RawMessage
	Node    string
	Session string
}

// The fields of requests and replies that matter here; a setData is answered by a stat alone.
type fields struct {
	Path     string
	Data     json.RawMessage
	Mode     string
	Version  int
	Session  string
	Children []string
	Stat     *struct{ Version int }
}

type request struct {
	invoked line
	asked   fields
	ended   *line
	// A read right behind a sync of its client is as new as the begin of that.
	sync *request
}

type story map[string][]porcupine.Operation

func parse(from io.Reader) ([]*request, error) {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 64<<20)
	var all []*request
	type name struct {
		process, f string
		xid        int64
	}
	open := map[name]*request{}
	last := map[string]*request{}
	for scanner.Scan() {
		var l line
		// The nemesis has lines of its own, and their values are words.
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %q: %w", scanner.Text(), err)
		}
		process := string(l.Process)
		key := name{process, l.F, l.Xid}
		switch {
		case process == `"nemesis"` || l.Type == "notice":
		case l.Type == "invoke":
			r := &request{invoked: l}
			if len(l.Value) > 0 {
				if err := json.Unmarshal(l.Value, &r.asked); err != nil {
					return nil, fmt.Errorf("index %d: %w", l.Index, err)
				}
			}
			if before := last[process]; before != nil && before.isSyncFor(r) {
				r.sync = before
			}
			last[process] = r
			open[key] = r
			all = append(all, r)
		case l.Type == "ok" || l.Type == "fail" || l.Type == "info":
			r := open[key]
			if r == nil {
				return nil, fmt.Errorf("index %d ends what never began", l.Index)
			}
			delete(open, key)
			r.ended = &l
		default:
			return nil, fmt.Errorf("index %d is of the unknown type %q", l.Index, l.Type)
		}
	}
	return all, scanner.Err()
}

func (r *request) isSyncFor(next *request) bool {
	return r.invoked.F == "sync" && r.ended != nil && r.ended.Type == "ok" &&
		r.invoked.Session == next.invoked.Session && r.invoked.Node == next.invoked.Node
}

// The operations on each znode below the root.
func operations(all []*request, linearizableReads bool) (story, error) {
	paths := story{}
	var marks []porcupine.Operation
	var lists []*request
	for _, r := range all {
		switch r.invoked.F {
		case "ping", "sync", "closeSession":
		case "connect":
			if r.ended != nil && r.ended.Type == "ok" && r.asked.Session == "0x0" {
				session, err := r.answer()
				if err != nil {
					return nil, err
				}
				marks = append(marks, r.operation(input{kind: mark, session: session.Session}, output{}))
			}
		case "getChildren", "getChildren2":
			if r.asked.Path == root && (r.sync != nil || linearizableReads) {
				lists = append(lists, r)
			}
		case "create", "create2", "setData", "delete", "getData":
			op, err := r.onZnode(linearizableReads)
			if err != nil {
				return nil, err
			}
			if op != nil && strings.HasPrefix(r.asked.Path, root+"/") {
				paths[r.asked.Path] = append(paths[r.asked.Path], *op)
			}
			if op != nil && op.Input.(input).kind != read && !op.Output.(output).unknown {
				marked := *op
				marked.Input = input{kind: mark, session: op.Input.(input).session}
				marked.Metadata = r.asked.Path
				marks = append(marks, marked)
			}
		default:
			return nil, fmt.Errorf("index %d: no register history has %q", r.invoked.Index, r.invoked.F)
		}
	}
	if err := addLists(paths, lists); err != nil {
		return nil, err
	}
	for path := range paths {
		addMarks(paths, path, marks)
		last := porcupine.Operation{Input: input{kind: end}, Output: output{}, Call: math.MaxInt64 - 2, Return: math.MaxInt64 - 1}
		paths[path] = append(paths[path], last)
	}
	return paths, nil
}

// The operation on the znode that the request names; none if it says nothing of it.
func (r *request) onZnode(linearizableReads bool) (*porcupine.Operation, error) {
	asked := input{kind: kind(r.invoked.F), session: r.invoked.Session, data: string(r.asked.Data), version: r.asked.Version}
	if r.invoked.F == "create2" {
		asked.kind = create
	}
	if asked.kind == create && r.asked.Mode != "persistent" {
		return nil, fmt.Errorf("index %d: no register history has a create of mode %q", r.invoked.Index, r.asked.Mode)
	}
	if asked.kind == read && (linearizableReads || r.sync != nil) {
		asked.kind = readNewest
	}
	isRead := asked.kind == read || asked.kind == readNewest
	if r.ended != nil && r.ended.Type == "fail" && r.ended.Zxid == nil {
		return nil, nil
	}
	told := output{}
	switch {
	case r.ended == nil || r.ended.Type == "info":
		told.unknown = true
	case r.ended.Type == "fail":
		if err := json.Unmarshal(r.ended.Error, &told.failed); err != nil {
			return nil, fmt.Errorf("index %d: %w", r.ended.Index, err)
		}
		// An error that has nothing to do with what the znode is: what came of the write is not known.
		told.unknown = !slices.Contains([]string{"NoNode", "NodeExists", "BadVersion"}, told.failed)
	default:
		answer, err := r.answer()
		if err != nil {
			return nil, err
		}
		told.data, told.version, told.told = string(answer.Data), answer.Version, asked.kind == set
		if answer.Stat != nil {
			told.version, told.told = answer.Stat.Version, true
		}
	}
	if isRead && told.unknown {
		return nil, nil
	}
	op := r.operation(asked, told)
	return &op, nil
}

func (r *request) answer() (fields, error) {
	var answer fields
	if len(r.ended.Value) == 0 {
		return answer, nil
	}
	if err := json.Unmarshal(r.ended.Value, &answer); err != nil {
		return answer, fmt.Errorf("index %d: %w", r.ended.Index, err)
	}
	return answer, nil
}

// Indices rise with times, and no two are the same.
func (r *request) operation(asked input, told output) porcupine.Operation {
	_ = json.Unmarshal(r.invoked.Process, &asked.process)
	op := porcupine.Operation{ClientId: asked.process, Input: asked, Output: told, Call: r.invoked.Index, Return: math.MaxInt64}
	if r.sync != nil && (asked.kind == readNewest || asked.kind == listed) {
		op.Call = r.sync.invoked.Index
	}
	if !told.unknown {
		op.Return = r.ended.Index
	}
	return op
}

// A list of the children says of each znode whether it is there.
func addLists(paths story, lists []*request) error {
	for _, r := range lists {
		if r.ended == nil || r.ended.Type != "ok" {
			continue
		}
		answer, err := r.answer()
		if err != nil {
			return err
		}
		for _, child := range answer.Children {
			if path := root + "/" + child; paths[path] == nil {
				paths[path] = nil
			}
		}
		for path := range paths {
			present := slices.Contains(answer.Children, strings.TrimPrefix(path, root+"/"))
			paths[path] = append(paths[path], r.operation(input{kind: listed, session: r.invoked.Session}, output{present: present}))
		}
	}
	return nil
}

// Adds the writes elsewhere that bind a later read of their session on this path. They count from when they began:
// nothing later asks less of the reads, so that the search need not try it.
func addMarks(paths story, path string, marks []porcupine.Operation) {
	first, lastRead := int64(math.MaxInt64), map[string]int64{}
	for _, op := range paths[path] {
		first = min(first, op.Call)
		if asked := op.Input.(input); asked.kind == read {
			lastRead[asked.session] = max(lastRead[asked.session], op.Call)
		}
	}
	for _, m := range marks {
		if m.Metadata != path && m.Return > first && m.Return < lastRead[m.Input.(input).session] {
			m.Return = m.Call
			paths[path] = append(paths[path], m)
		}
	}
}
