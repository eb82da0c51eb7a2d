// The golden session of go-zookeeper/zk. Usage: session HOST:PORT
package main

import (
	"log"
	"os"
	"time"

	"github.com/go-zookeeper/zk"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func expect(want, err error) {
	if err != want {
		log.Fatalf("wanted %v, got %v", want, err)
	}
}

func connected(events <-chan zk.Event) {
	for event := range events {
		if event.State == zk.StateHasSession {
			return
		}
	}
}

func seen(events <-chan zk.Event) {
	select {
	case <-events:
	case <-time.After(5 * time.Second):
		log.Fatal("no event")
	}
}

func znodes(c *zk.Conn, acl []zk.ACL) {
	_, err := c.Create("/g", []byte("one"), 0, acl)
	must(err)
	_, err = c.Create("/g/e", nil, zk.FlagEphemeral, acl)
	must(err)
	_, err = c.Create("/g/s-", []byte("x"), zk.FlagSequence, acl)
	must(err)
	_, err = c.Create("/g/es-", []byte{}, zk.FlagSequence|zk.FlagEphemeral, acl)
	must(err)
	_, err = c.CreateContainer("/g/c", nil, zk.FlagContainer, acl)
	must(err)
	_, err = c.CreateTTL("/g/t", nil, zk.FlagTTL, acl, 10*time.Minute)
	must(err)
	_, err = c.CreateProtectedEphemeralSequential("/g/p-", nil, acl)
	must(err)
	_, err = c.Create("/g", nil, 0, acl)
	expect(zk.ErrNodeExists, err)
	_, _, err = c.Get("/g")
	must(err)
	_, _, err = c.Get("/none")
	expect(zk.ErrNoNode, err)
	_, _, err = c.Exists("/g")
	must(err)
	_, _, err = c.Exists("/none")
	must(err)
	_, _, err = c.Children("/g")
	must(err)
	_, err = c.Sync("/g")
	must(err)
}

func watches(c *zk.Conn, acl []zk.ACL) {
	_, _, changed, err := c.GetW("/g")
	must(err)
	_, _, children, err := c.ChildrenW("/g")
	must(err)
	_, _, created, err := c.ExistsW("/g/later")
	must(err)
	_, err = c.Set("/g", []byte("two"), -1)
	must(err)
	_, err = c.Create("/g/later", nil, 0, acl)
	must(err)
	seen(changed)
	seen(children)
	seen(created)
	_, err = c.Set("/g", nil, 0)
	expect(zk.ErrBadVersion, err)
}

func transactions(c *zk.Conn, acl []zk.ACL) {
	_, err := c.Multi(
		&zk.CreateRequest{Path: "/g/m", Data: []byte("m"), Acl: acl},
		&zk.SetDataRequest{Path: "/g/m", Data: []byte("n"), Version: 0},
		&zk.CheckVersionRequest{Path: "/g/m", Version: 1},
		&zk.DeleteRequest{Path: "/g/m", Version: 1})
	must(err)
	_, err = c.Multi(&zk.CreateRequest{Path: "/g/u", Acl: acl}, &zk.CheckVersionRequest{Path: "/g", Version: 99})
	expect(zk.ErrBadVersion, err)
}

func access(c *zk.Conn) {
	_, _, err := c.GetACL("/g")
	must(err)
	must(c.AddAuth("digest", []byte("bob:pw")))
	_, err = c.SetACL("/g/later", zk.DigestACL(zk.PermAll, "bob", "pw"), -1)
	must(err)
	expect(zk.ErrNotEmpty, c.Delete("/g", -1))
}

func main() {
	c, events, err := zk.Connect([]string{os.Args[1]}, 10*time.Second, zk.WithLogInfo(false))
	must(err)
	connected(events)
	acl := zk.WorldACL(zk.PermAll)
	znodes(c, acl)
	watches(c, acl)
	transactions(c, acl)
	access(c)
	_, _, _, err = c.GetW("/g")
	must(err)
	_, _, err = c.Exists("/drop")
	must(err)
	connected(events)
	_, _, err = c.Get("/g/e")
	must(err)
	children, _, err := c.Children("/g")
	must(err)
	for _, child := range children {
		must(c.Delete("/g/"+child, -1))
	}
	must(c.Delete("/g", -1))
	c.Close()
	time.Sleep(200 * time.Millisecond)
}
