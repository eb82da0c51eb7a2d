// Drives znodes with an unmodified client of another project, go-zookeeper, and judges what that was answered. The
// script `go-client` starts the servers and lets faults strike meanwhile.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"
)

const (
	driven = "/driven"
	// Znodes in use at a time, and for how many operations: a search for an order is only affordable over short stories.
	keys      = 3
	perKey    = 120
	pauseMax  = 20 * time.Millisecond
	sessionOf = 6 * time.Second
	// When an operation returns of which nothing is known.
	open = math.MaxInt64
)

type driver struct {
	began        time.Time
	linearizable bool
	mutex        sync.Mutex
	started      int
	paths        story
	// Reads that say nothing: the client changed its server between sync and read, or had no answer.
	dropped int
}

func drive(arguments []string) int {
	flags := flag.NewFlagSet("drive", flag.ContinueOnError)
	servers := flags.String("servers", "127.0.0.1:2181", "host:port, with commas between them")
	seconds := flags.Int("seconds", 30, "how long to drive")
	clients := flags.Int("clients", 5, "connections, each with a session of its own")
	seed := flags.Int64("seed", 1, "of what is asked")
	linearizable := flags.Bool("linearizable-reads", false, "read without sync (servers with lockkeeper.reads=linearizable)")
	if flags.Parse(arguments) != nil {
		return failed
	}
	d := &driver{began: time.Now(), linearizable: *linearizable, paths: story{}}
	until := d.began.Add(time.Duration(*seconds) * time.Second)
	var all sync.WaitGroup
	failures := make(chan error, *clients)
	for process := range *clients {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := d.client(process, strings.Split(*servers, ","), until, rand.New(rand.NewSource(*seed+int64(process)))); err != nil {
				failures <- err
			}
		}()
	}
	all.Wait()
	close(failures)
	for err := range failures {
		fmt.Println("FAILED ", err)
		return failed
	}
	for path := range d.paths {
		last := porcupine.Operation{Input: input{kind: end}, Output: output{}, Call: open - 2, Return: open - 1}
		d.paths[path] = append(d.paths[path], last)
	}
	v := judgeStories(d.paths, 30*time.Second)
	c := v.counts
	fmt.Printf("%-7s go-zookeeper, %d clients, %d s: %d znodes, %d operations (%d writes, %d of them unknown; %d reads), %d reads dropped\n",
		words[v.code], *clients, *seconds, c.znodes, c.operations, c.writes, c.unknown, c.reads, d.dropped)
	for _, why := range v.whys {
		fmt.Println("       ", why)
	}
	return v.code
}

// One client, until the time is over. Only what keeps it from asking at all is an error.
func (d *driver) client(process int, servers []string, until time.Time, random *rand.Rand) error {
	conn, _, err := zk.Connect(servers, sessionOf, zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer conn.Close()
	for time.Now().Before(until) {
		if _, err := conn.Create(driven, nil, 0, zk.WorldACL(zk.PermAll)); err == nil || errors.Is(err, zk.ErrNodeExists) {
			break
		}
		time.Sleep(pauseMax)
	}
	versions := map[string]int{}
	for written := 0; time.Now().Before(until); written++ {
		time.Sleep(time.Duration(random.Int63n(int64(pauseMax))))
		d.mutex.Lock()
		path := fmt.Sprintf("%s/k%d", driven, d.started/(keys*perKey)*keys+random.Intn(keys))
		d.started++
		d.mutex.Unlock()
		version, isKnown := versions[path]
		if !isKnown {
			version = -1
		}
		asked := input{session: fmt.Sprint(process), process: process, data: fmt.Sprintf("%d.%d", process, written), version: -1}
		switch choice := random.Intn(100); {
		case choice < 40:
			asked.kind, asked.data = readNewest, ""
		case choice < 60:
			asked.kind = set
		case choice < 80:
			asked.kind, asked.version = set, version
		case choice < 85:
			asked.kind, asked.version, asked.data = del, version, ""
		default:
			asked.kind = create
		}
		d.ask(conn, path, asked, versions)
	}
	return nil
}

// Asks once, and notes what was asked, what was answered, and when.
func (d *driver) ask(conn *zk.Conn, path string, asked input, versions map[string]int) {
	var told output
	var err error
	called := time.Since(d.began).Nanoseconds()
	switch asked.kind {
	case readNewest:
		server := conn.Server()
		if !d.linearizable {
			_, err = conn.Sync(path)
		}
		if err == nil {
			var data []byte
			var stat *zk.Stat
			if data, stat, err = conn.Get(path); err == nil {
				told.data, told.version, told.told = string(data), int(stat.Version), true
			}
		}
		// A sync reaches what the same server answers behind it.
		if !d.linearizable && conn.Server() != server {
			err = zk.ErrConnectionClosed
		}
	case set:
		var stat *zk.Stat
		if stat, err = conn.Set(path, []byte(asked.data), int32(asked.version)); err == nil {
			told.version, told.told = int(stat.Version), true
		}
	case del:
		err = conn.Delete(path, int32(asked.version))
	case create:
		_, err = conn.Create(path, []byte(asked.data), 0, zk.WorldACL(zk.PermAll))
	}
	returned := time.Since(d.began).Nanoseconds()
	switch {
	case err == nil:
	case errors.Is(err, zk.ErrNoNode):
		told.failed = "NoNode"
	case errors.Is(err, zk.ErrNodeExists):
		told.failed = "NodeExists"
	case errors.Is(err, zk.ErrBadVersion):
		told.failed = "BadVersion"
	default:
		told.unknown, returned = true, open
	}
	if told.told {
		versions[path] = told.version
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if told.unknown && asked.kind == readNewest {
		d.dropped++
		return
	}
	op := porcupine.Operation{ClientId: asked.process, Input: asked, Output: told, Call: called, Return: returned}
	d.paths[path] = append(d.paths[path], op)
}
