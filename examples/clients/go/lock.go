// A lock with go-zookeeper. Enter gives it away. In examples/clients/go:
//
//	go build -o /tmp/lock .
//	/tmp/lock 127.0.0.1:2181 /locks/demo
package main

import (
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	servers, path := strings.Split(os.Args[1], ","), os.Args[2]
	client, events, err := zk.Connect(servers, 10*time.Second, zk.WithLogInfo(false))
	must(err)
	var held atomic.Bool
	go func() {
		for event := range events {
			// The lock itself never says that it is lost. So stop when the connection is.
			if held.Load() && event.State == zk.StateDisconnected {
				os.Exit(75)
			}
		}
	}()
	lock := zk.NewLock(client, path, zk.WorldACL(zk.PermAll))
	must(lock.Lock())
	held.Store(true)
	node, token := own(client, path)
	fmt.Println("HELD", node, token)
	_, _ = os.Stdin.Read(make([]byte, 1))
	must(lock.Unlock())
	held.Store(false)
	fmt.Println("RELEASED", node, token)
	client.Close()
}

// own finds the lock's znode, whose path the lock keeps to itself, and its fencing token: whatever the
// lock protects should refuse smaller ones.
func own(client *zk.Conn, path string) (string, int64) {
	names, _, err := client.Children(path)
	must(err)
	for _, name := range names {
		node := path + "/" + name
		is, stat, err := client.Exists(node)
		must(err)
		if is && stat.EphemeralOwner == client.SessionID() {
			return node, stat.Czxid
		}
	}
	log.Fatal("the lock is lost")
	return "", 0
}
