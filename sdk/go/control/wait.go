package control

import (
	"context"
	"time"
)

// WaitRevision waits until the store has a revision or a later one. timeout is time of the system, 0 for none.
func (c *Client) WaitRevision(ctx context.Context, revision int64, timeout time.Duration) (Point, error) {
	return c.wait(ctx, "min_revision", revision, timeout)
}

// WaitKey waits until a key is live.
func (c *Client) WaitKey(ctx context.Context, key string, timeout time.Duration) (Point, error) {
	return c.wait(ctx, "key", []byte(key), timeout)
}

// WaitWatchers waits until at least this many watches are open.
func (c *Client) WaitWatchers(ctx context.Context, watches uint64, timeout time.Duration) (Point, error) {
	return c.wait(ctx, "watchers", watches, timeout)
}

func (c *Client) wait(ctx context.Context, name string, value any, timeout time.Duration) (Point, error) {
	request := map[string]any{name: value}
	if timeout != 0 {
		request["timeout"] = timeout.String()
	}
	return c.change(ctx, "Wait", request)
}
