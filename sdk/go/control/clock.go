package control

import (
	"context"
	"time"
)

// The modes of the clock.
const (
	System = "system"
	Manual = "manual"
	Auto   = "auto"
)

// Clock is the state of the clock.
type Clock struct {
	Point
	Mode string   `json:"mode"`
	Now  Duration `json:"now"`
}

// SetClock changes the mode: System, Manual or Auto.
func (c *Client) SetClock(ctx context.Context, mode string) (Clock, error) {
	var clock Clock
	err := c.Call(ctx, "ClockSet", map[string]any{"mode": mode}, &clock)
	return clock, err
}

// Advance moves the time. When it returns, everything that became due is done.
func (c *Client) Advance(ctx context.Context, by time.Duration) (Clock, error) {
	var clock Clock
	err := c.Call(ctx, "ClockAdvance", map[string]any{"by": by.String()}, &clock)
	return clock, err
}

// AdvanceToNext moves the time to the next due work.
func (c *Client) AdvanceToNext(ctx context.Context) (Clock, error) {
	var clock Clock
	err := c.Call(ctx, "ClockAdvance", map[string]any{"to_next": true}, &clock)
	return clock, err
}

// Pending is work that is due at a time.
type Pending struct {
	Kind string   `json:"kind"`
	ID   string   `json:"id"`
	Due  Duration `json:"due"`
}

// Pending lists what is due, at most 1,000 entries.
func (c *Client) Pending(ctx context.Context) ([]Pending, error) {
	var list struct{ Pending []Pending }
	err := c.Call(ctx, "ClockPending", struct{}{}, &list)
	return list.Pending, err
}
