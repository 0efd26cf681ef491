package control

import (
	"context"
	"encoding/json"
	"io"
	"strings"
)

// Checkpoint keeps the store under a name.
func (c *Client) Checkpoint(ctx context.Context, name string) (Point, error) {
	return c.change(ctx, "StoreCheckpoint", map[string]any{"name": name})
}

// Restore is how a checkpoint replaces the store.
type Restore struct {
	BumpRevision  int64 // added to the revision of the checkpoint
	MarkCompacted bool  // what is below the new revision counts as compacted
}

// RestoreCheckpoint replaces the store by a checkpoint. Open streams and connections of clients end.
func (c *Client) RestoreCheckpoint(ctx context.Context, name string, how Restore) (Point, error) {
	return c.change(ctx, "StoreRestore", map[string]any{
		"name": name, "bump_revision": how.BumpRevision, "mark_compacted": how.MarkCompacted,
	})
}

// Reset replaces the store by an empty one, at revision 1 or at the current one.
func (c *Client) Reset(ctx context.Context, keepRevision bool) (Point, error) {
	return c.change(ctx, "StoreReset", map[string]any{"keep_revision": keepRevision})
}

// Jump makes the next write get a revision.
func (c *Client) Jump(ctx context.Context, revision int64) (Point, error) {
	return c.change(ctx, "StoreJump", map[string]any{"revision": revision})
}

// Compact compacts the store at a revision, or with 0 at the current one.
func (c *Client) Compact(ctx context.Context, revision int64) (Point, error) {
	return c.change(ctx, "StoreCompact", map[string]any{"revision": revision})
}

// Drop ends a fork, or removes a checkpoint.
func (c *Client) Drop(ctx context.Context, id string) (Point, error) {
	return c.change(ctx, "StoreDrop", map[string]any{"id": id})
}

func (c *Client) change(ctx context.Context, method string, request any) (Point, error) {
	var point Point
	err := c.Call(ctx, method, request, &point)
	return point, err
}

// Fork is an independent server with the same history, in the process of its parent.
type Fork struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	Control  string `json:"control"` // the URL for New
}

// Fork starts a fork. It ends with Drop or with its parent.
func (c *Client) Fork(ctx context.Context) (Fork, error) {
	var fork Fork
	err := c.Call(ctx, "StoreFork", struct{}{}, &fork)
	return fork, err
}

// Forks lists the forks.
func (c *Client) Forks(ctx context.Context) ([]Fork, error) {
	var list struct{ Forks []Fork }
	err := c.Call(ctx, "StoreForks", struct{}{}, &list)
	return list.Forks, err
}

// Dump writes the store as text, one event in each line.
func (c *Client) Dump(ctx context.Context, to io.Writer) error {
	body, err := c.open(ctx, "StoreDump", "application/json", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(to, body)
	return err
}

// Load replaces the store by a dump.
func (c *Client) Load(ctx context.Context, dump io.Reader) (Point, error) {
	return c.send(ctx, "StoreLoad", dump)
}

// Import replaces the store by a file of `etcdctl snapshot save`.
func (c *Client) Import(ctx context.Context, snapshot io.Reader) (Point, error) {
	return c.send(ctx, "StoreImport", snapshot)
}

func (c *Client) send(ctx context.Context, method string, file io.Reader) (Point, error) {
	var point Point
	body, err := c.open(ctx, method, "application/octet-stream", file)
	if err != nil {
		return point, err
	}
	defer body.Close()
	err = json.NewDecoder(body).Decode(&point)
	return point, err
}

// Lease is a lease.
type Lease struct {
	ID        string   `json:"id"` // hexadecimal, as etcdctl writes it
	Number    int64    `json:"number"`
	TTL       Duration `json:"ttl"`
	Remaining Duration `json:"remaining"`
	Keys      uint64   `json:"keys"`
}

// Leases lists the leases in the order of their expiry, at most 1,000.
func (c *Client) Leases(ctx context.Context) ([]Lease, error) {
	var list struct{ Leases []Lease }
	err := c.Call(ctx, "Leases", struct{}{}, &list)
	return list.Leases, err
}

// Expire ends a lease now, as if its time had passed.
func (c *Client) Expire(ctx context.Context, lease int64) (Point, error) {
	return c.change(ctx, "Expire", map[string]any{"number": lease})
}

// RaiseAlarm raises an alarm: nospace or corrupt.
func (c *Client) RaiseAlarm(ctx context.Context, name string) (Point, error) {
	return c.change(ctx, "Alarm", map[string]any{"action": "raise", "name": name})
}

// ClearAlarm clears an alarm.
func (c *Client) ClearAlarm(ctx context.Context, name string) (Point, error) {
	return c.change(ctx, "Alarm", map[string]any{"action": "clear", "name": name})
}

// NewTerm begins the next Raft term and returns it.
func (c *Client) NewTerm(ctx context.Context) (uint64, error) {
	var answer struct{ Term uint64 }
	err := c.Call(ctx, "TermNew", struct{}{}, &answer)
	return answer.Term, err
}
