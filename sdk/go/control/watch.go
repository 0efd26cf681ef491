package control

import "context"

// AllWatches stands for all open watches of clients.
const AllWatches uint64 = 0

// HoldWatch holds the events of a watch until ReleaseWatch.
func (c *Client) HoldWatch(ctx context.Context, id uint64) (int, error) {
	return c.watch(ctx, "WatchHold", id)
}

// ReleaseWatch sends the events of a held watch.
func (c *Client) ReleaseWatch(ctx context.Context, id uint64) (int, error) {
	return c.watch(ctx, "WatchRelease", id)
}

// CutWatch ends the stream of a watch with an error.
func (c *Client) CutWatch(ctx context.Context, id uint64) (int, error) {
	return c.watch(ctx, "WatchCut", id)
}

// CancelWatchCompacted cancels a watch as compacted.
func (c *Client) CancelWatchCompacted(ctx context.Context, id uint64) (int, error) {
	return c.watch(ctx, "WatchCancelCompacted", id)
}

// BookmarkWatch sends a progress notification to a watch now.
func (c *Client) BookmarkWatch(ctx context.Context, id uint64) (int, error) {
	return c.watch(ctx, "WatchBookmark", id)
}

// watch sends a command and returns the number of watches that got it.
func (c *Client) watch(ctx context.Context, method string, id uint64) (int, error) {
	request := map[string]any{}
	if id != AllWatches {
		request["id"] = id
	}
	var response struct{ Watches int }
	err := c.Call(ctx, method, request, &response)
	return response.Watches, err
}

// Watch is an open watch.
type Watch struct {
	ID         uint64 `json:"id"`
	ClientName string `json:"client"`
	User       string `json:"user"`
	Connection uint64 `json:"connection"`
	Key        []byte `json:"key"`
	End        []byte `json:"range_end"`
	Start      int64  `json:"start"`    // the revision from which on it gets events
	Position   int64  `json:"position"` // the revision up to which it was sent everything
	Lag        int64  `json:"lag"`      // the number of revisions behind which it is
	State      string `json:"state"`    // synced, sending or held
}

// Watches lists the open watches.
func (c *Client) Watches(ctx context.Context) ([]Watch, error) {
	var list struct{ Watches []Watch }
	err := c.Call(ctx, "Watches", struct{}{}, &list)
	return list.Watches, err
}

// Connection is an open connection.
type Connection struct {
	ID         uint64   `json:"id"`
	Address    string   `json:"address"`
	ClientName string   `json:"client"`
	Since      Duration `json:"since"`
	Requests   uint64   `json:"requests"`
}

// Connections lists the open connections.
func (c *Client) Connections(ctx context.Context) ([]Connection, error) {
	var list struct{ Connections []Connection }
	err := c.Call(ctx, "Connections", struct{}{}, &list)
	return list.Connections, err
}
