package control

import "context"

// Fault is a rule: the requests that it selects, when it fires, and what happens then. Exactly one action must be given.
type Fault struct {
	// The selector: all conditions must hold.
	Methods    []string `json:"methods,omitempty"` // such as Put, KV/Put or etcdserverpb.KV/Put
	Prefix     []byte   `json:"prefix,omitempty"`
	Range      *Range   `json:"range,omitempty"`
	User       string   `json:"user,omitempty"`
	ClientName string   `json:"client,omitempty"`
	Connection uint64   `json:"connection,omitempty"`
	// The conditions of the Kubernetes API.
	Verb      string `json:"verb,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`

	// The trigger: at most one. Without any, the rule fires until it is cleared.
	Next         uint64   `json:"next,omitempty"`
	Every        uint64   `json:"every,omitempty"`
	Probability  *float64 `json:"probability,omitempty"`
	Seed         uint64   `json:"seed,omitempty"` // of Probability
	FromRevision int64    `json:"from_revision,omitempty"`
	ToRevision   int64    `json:"to_revision,omitempty"`

	// The action.
	Error           string `json:"error,omitempty"`       // CODE:TEXT: the call is not executed
	ErrorAfter      string `json:"error_after,omitempty"` // CODE:TEXT: the call is executed, its answer is lost
	Preset          string `json:"preset,omitempty"`      // such as no-leader
	Delay           *Delay `json:"delay,omitempty"`
	Reset           bool   `json:"reset,omitempty"`
	BlackHole       bool   `json:"black_hole,omitempty"`
	GoAway          bool   `json:"goaway,omitempty"`
	Refuse          bool   `json:"refuse,omitempty"`
	Hold            bool   `json:"hold,omitempty"`
	Cut             bool   `json:"cut,omitempty"`
	CancelCompacted bool   `json:"cancel_compacted,omitempty"`
	LoseKeepAlive   bool   `json:"lose_keep_alive,omitempty"`
	HTTP            *HTTP  `json:"http,omitempty"`
	Stale           bool   `json:"stale,omitempty"`
}

// Range is the keys from Key to End, which is not included.
type Range struct {
	Key []byte `json:"key"`
	End []byte `json:"range_end"`
}

// Delay delays a call, by time of the server's clock unless Wall is set.
type Delay struct {
	Time Duration `json:"time"`
	Wall bool     `json:"wall,omitempty"`
}

// HTTP is an answer of the Kubernetes API.
type HTTP struct {
	Status     uint32 `json:"status"`
	RetryAfter uint32 `json:"retry_after,omitempty"` // in seconds
}

// AddFault adds a rule and returns its number.
func (c *Client) AddFault(ctx context.Context, fault Fault) (uint64, error) {
	var added struct{ ID uint64 }
	err := c.Call(ctx, "FaultAdd", fault, &added)
	return added.ID, err
}

// FaultStatus is a rule, as the flags of the command line, with the number of requests for which it has fired.
type FaultStatus struct {
	ID    uint64 `json:"id"`
	Rule  string `json:"rule"`
	Fired uint64 `json:"fired"`
}

// Faults lists the rules.
func (c *Client) Faults(ctx context.Context) ([]FaultStatus, error) {
	var list struct{ Faults []FaultStatus }
	err := c.Call(ctx, "FaultList", struct{}{}, &list)
	return list.Faults, err
}

// ClearFault removes a rule and releases what it holds.
func (c *Client) ClearFault(ctx context.Context, id uint64) error {
	return c.Call(ctx, "FaultClear", map[string]any{"id": id}, &struct{}{})
}

// ClearFaults removes all rules.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.Call(ctx, "FaultClear", struct{}{}, &struct{}{})
}
