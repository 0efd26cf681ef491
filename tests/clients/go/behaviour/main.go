// Command behaviour is the driver of clientv3 for docs/client-behaviour.md: it executes the commands that
// it reads from standard input, and prints what the client does. ../../behaviour/README.md has both forms.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// command is a line of standard input.
type command struct {
	ID        int    `json:"id"`
	Op        string `json:"op"`
	Endpoint  string `json:"endpoint"`
	User      string `json:"user"`
	Password  string `json:"password"`
	KeepAlive bool   `json:"keepalive"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Revision  int64  `json:"revision"`
	TTL       int    `json:"ttl"`
}

// event is a line of standard output.
type event struct {
	ID       int    `json:"id"`
	Event    string `json:"event"`
	Text     string `json:"text,omitempty"`
	Key      string `json:"key,omitempty"`
	Value    string `json:"value,omitempty"`
	Revision int64  `json:"revision,omitempty"`
}

var output sync.Mutex

func tell(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	// An error means that the runner has ended.
	_, _ = os.Stdout.Write(append(line, '\n'))
}

func main() {
	var client *clientv3.Client
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		if c.Op == "connect" {
			var err error
			client, err = connect(c)
			answer(c.ID, "", err)
			continue
		}
		go execute(client, c)
	}
}

func connect(c command) (*clientv3.Client, error) {
	config := clientv3.Config{
		Endpoints:   []string{c.Endpoint},
		Username:    c.User,
		Password:    c.Password,
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	}
	if c.KeepAlive {
		config.DialKeepAliveTime = 10 * time.Second
		config.DialKeepAliveTimeout = time.Second
	}
	return clientv3.New(config)
}

// answer tells how a call has ended.
func answer(id int, value string, err error) {
	if err != nil {
		tell(event{ID: id, Event: "failed", Text: err.Error()})
		return
	}
	tell(event{ID: id, Event: "returned", Value: value})
}

func execute(client *clientv3.Client, c command) {
	ctx := context.Background()
	switch c.Op {
	case "put":
		_, err := client.Put(ctx, c.Key, c.Value)
		answer(c.ID, "", err)
	case "get":
		got, err := client.Get(ctx, c.Key)
		value := ""
		if err == nil && len(got.Kvs) > 0 {
			value = string(got.Kvs[0].Value)
		}
		answer(c.ID, value, err)
	case "create":
		done, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(c.Key), "=", 0)).
			Then(clientv3.OpPut(c.Key, c.Value)).
			Commit()
		value := ""
		if err == nil && done.Succeeded {
			value = "succeeded"
		}
		answer(c.ID, value, err)
	case "watch":
		watch(ctx, client, c)
	case "lock":
		lock(ctx, client, c)
	default:
		panic("unknown op " + c.Op)
	}
}

func watch(ctx context.Context, client *clientv3.Client, c command) {
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
	if c.Revision != 0 {
		options = append(options, clientv3.WithRev(c.Revision))
	}
	for response := range client.Watch(ctx, c.Key, options...) {
		if response.Created {
			tell(event{ID: c.ID, Event: "created"})
		}
		for _, e := range response.Events {
			tell(event{ID: c.ID, Event: "item", Key: string(e.Kv.Key), Value: string(e.Kv.Value), Revision: e.Kv.ModRevision})
		}
		if err := response.Err(); err != nil {
			tell(event{ID: c.ID, Event: "failed", Text: err.Error(), Revision: response.CompactRevision})
		}
	}
	tell(event{ID: c.ID, Event: "ended"})
}

func lock(ctx context.Context, client *clientv3.Client, c command) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(c.TTL))
	if err == nil {
		err = concurrency.NewMutex(session, c.Key).Lock(ctx)
	}
	answer(c.ID, "", err)
	if err != nil {
		return
	}
	<-session.Done()
	tell(event{ID: c.ID, Event: "lost", Text: "Session.Done() is closed"})
}
