// The model: one znode, and how far into its story each session has looked.
//
// Writes, refused ones too, are linearizable. A plain read may be old, but never older than what its session
// has read, written or been created behind. Zxids are not used: that the servers number their
// transactions well is for others to check.
package main

import (
	"fmt"
	"maps"

	"github.com/anishathalye/porcupine"
)

type kind string

const (
	create kind = "create"
	set    kind = "setData"
	del    kind = "delete"
	// A read that may be old.
	read kind = "getData"
	// A read behind a sync, or any read where reads are linearizable.
	readNewest kind = "getData, not old"
	// A list of the parent's children behind a sync: whether the znode is among them.
	listed kind = "getChildren2"
	// A write on another path, or the creation of the session: what the session reads later is no older.
	mark kind = "a write elsewhere"
	// Behind everything that was answered: a write with unknown outcome that has had no effect yet has none.
	end kind = "the end"
)

// What was asked.
type input struct {
	kind    kind
	session string
	data    string
	// The version that a write expects, -1 for any.
	version int
	process int
}

// What was answered.
type output struct {
	// Nobody knows what became of it.
	unknown bool
	// The error, if there was one.
	failed string
	// Whether a version was told; a delete tells none.
	told    bool
	version int
	data    string
	present bool
}

// One value of a znode in its story, with all before it.
type entry struct {
	present bool
	version int
	data    string
	depth   int
	before  *entry
}

// The story so far, and by session the depth of the oldest entry that it may still read. Neither is ever
// changed in place.
type state struct {
	newest *entry
	seen   map[string]int
	ended  bool
}

func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{newest: &entry{}} },
		Step: func(before, asked, answered any) (bool, any) {
			fits, after := step(before.(state), asked.(input), answered.(output))
			return fits, after
		},
		Equal: func(a, b any) bool { return equal(a.(state), b.(state)) },
		Hash:  func(s any) uint64 { return uint64(s.(state).newest.depth) },
	}
}

func equal(a, b state) bool {
	if a.ended != b.ended || !maps.Equal(a.seen, b.seen) {
		return false
	}
	one, other := a.newest, b.newest
	for one != other {
		if one == nil || other == nil || one.depth != other.depth || !one.same(other) {
			return false
		}
		one, other = one.before, other.before
	}
	return true
}

func (e *entry) same(other *entry) bool {
	return e.present == other.present && e.version == other.version && e.data == other.data
}

// Whether the answer is possible, and the state after it.
func step(now state, asked input, answered output) (bool, state) {
	switch asked.kind {
	case end:
		now.ended = true
		return true, now
	case mark:
		return true, now.sawNewest(asked.session)
	case listed:
		return answered.present == now.newest.present, now
	case readNewest:
		return reads(now.newest, answered), now.sawNewest(asked.session)
	case read:
		return readsOld(now, asked, answered)
	}
	return writes(now, asked, answered)
}

// The oldest entry that explains the read is taken: it leaves the session's later reads the most.
func readsOld(now state, asked input, answered output) (bool, state) {
	var found *entry
	for e := now.newest; e != nil && e.depth >= now.seen[asked.session]; e = e.before {
		if reads(e, answered) {
			found = e
		}
	}
	if found == nil {
		return false, now
	}
	return true, now.saw(asked.session, found.depth)
}

func reads(e *entry, answered output) bool {
	if !e.present {
		return answered.failed == "NoNode"
	}
	return answered.failed == "" && answered.version == e.version && answered.data == e.data
}

func writes(now state, asked input, answered output) (bool, state) {
	if answered.unknown && now.ended {
		return true, now
	}
	due, next := carriedOut(now.newest, asked)
	if answered.unknown {
		// Without an effect it is as if it never happened, which is for the end; else the search would try that
		// everywhere. Its session has not been told of it.
		if due != "" {
			return false, now
		}
		now.newest = next
		return true, now
	}
	if due != answered.failed {
		return false, now
	}
	if due != "" {
		return true, now.sawNewest(asked.session)
	}
	if answered.told && answered.version != next.version {
		return false, now
	}
	now.newest = next
	return true, now.sawNewest(asked.session)
}

// The error that is due, or the entry that the write makes.
func carriedOut(at *entry, asked input) (string, *entry) {
	next := &entry{depth: at.depth + 1, before: at}
	if asked.kind == create {
		if at.present {
			return "NodeExists", nil
		}
		next.present, next.data = true, asked.data
		return "", next
	}
	if !at.present {
		return "NoNode", nil
	}
	if asked.version != -1 && asked.version != at.version {
		return "BadVersion", nil
	}
	if asked.kind == set {
		next.present, next.data, next.version = true, asked.data, at.version+1
	}
	return "", next
}

func (s state) sawNewest(session string) state {
	return s.saw(session, s.newest.depth)
}

func (s state) saw(session string, depth int) state {
	if s.seen[session] >= depth {
		return s
	}
	seen := maps.Clone(s.seen)
	if seen == nil {
		seen = map[string]int{}
	}
	seen[session] = depth
	return state{newest: s.newest, seen: seen, ended: s.ended}
}

func (i input) String() string {
	return fmt.Sprintf("%s by process %d in session %s (data %s, version %d)", i.kind, i.process, i.session, i.data, i.version)
}

func (o output) String() string {
	switch {
	case o.unknown:
		return "unknown"
	case o.failed != "":
		return o.failed
	}
	return fmt.Sprintf("done (data %s, version %d)", o.data, o.version)
}
