// The queue server as bradfitz/gomemcache sees it: `queueclient PORT`. Exits with 1 at the first answer that is not the expected one.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const queue = "go"

func connect() *memcache.Client {
	client := memcache.New("127.0.0.1:" + os.Args[1])
	client.Timeout = 10 * time.Second
	return client
}

func expect(step string, good bool, saw ...any) {
	if !good {
		fmt.Println(append([]any{step + ":"}, saw...)...)
		os.Exit(1)
	}
	fmt.Println("ok", step)
}

func put(client *memcache.Client, text string) {
	err := client.Set(&memcache.Item{Key: queue, Value: []byte(text), Flags: 7})
	expect("set "+text, err == nil, err)
}

func get(client *memcache.Client, key string, text string) {
	item, err := client.Get(key)
	expect(key, err == nil && string(item.Value) == text && item.Flags == 7 && item.Key == key, item, err)
}

func miss(client *memcache.Client, key string) {
	item, err := client.Get(key)
	expect(key+" without an item", errors.Is(err, memcache.ErrCacheMiss), item, err)
}

func main() {
	client, other := connect(), connect()
	put(client, "first")
	put(client, "second")
	get(client, queue, "first")
	get(client, queue, "second")
	miss(client, queue)

	go func() {
		time.Sleep(100 * time.Millisecond)
		put(other, "late")
	}()
	get(client, queue+"/t=8000", "late")
	miss(client, queue+"/t=20")

	put(client, "reliable")
	get(client, queue+"/open", "reliable")
	miss(other, queue)
	miss(client, queue+"/abort")
	get(client, queue+"/open", "reliable")
	expect("close the connection", client.Close() == nil)
	get(other, queue+"/t=8000/open", "reliable")
	miss(other, queue+"/close/open")

	put(other, "gone")
	expect("delete", other.Delete(queue) == nil)
	expect("delete what is not there", errors.Is(other.Delete(queue), memcache.ErrCacheMiss))
	expect("flush all", other.FlushAll() == nil)
	expect("version", other.Ping() == nil)
}
