// The lock of go-zookeeper, under the orders of tests/clients/interop (locks/README.md).
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

func main() {
	var sessions [2]*zk.Conn
	for i := range sessions {
		client, events, err := zk.Connect(strings.Split(os.Args[1], ","), 30*time.Second, zk.WithLogInfo(false))
		if err != nil {
			log.Fatal(err)
		}
		for event := range events {
			if event.State == zk.StateHasSession {
				break
			}
		}
		sessions[i] = client
	}
	said := make(chan string)
	go func() {
		for line := range said {
			fmt.Println(line)
		}
	}()
	said <- "READY"
	ordersToFree := map[string]chan struct{}{}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		words := strings.Split(orders.Text(), " ")
		id := words[1]
		if words[0] == "free" {
			close(ordersToFree[id])
			continue
		}
		toFree := make(chan struct{})
		ordersToFree[id] = toFree
		client := sessions[int(words[3][0]-'0')]
		go hold(id, zk.NewLock(client, words[4], zk.WorldACL(zk.PermAll)), toFree, said)
	}
}

func hold(id string, lock *zk.Lock, toFree chan struct{}, said chan string) {
	if err := lock.Lock(); err != nil {
		said <- fmt.Sprintf("ERROR %s %v", id, err)
		return
	}
	said <- fmt.Sprintf("GOT %s ", id)
	<-toFree
	if err := lock.Unlock(); err != nil {
		said <- fmt.Sprintf("ERROR %s %v", id, err)
		return
	}
	said <- fmt.Sprintf("FREED %s ", id)
}
