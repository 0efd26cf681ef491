package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// JournalFilter selects records. What is empty is not looked at.
type JournalFilter struct {
	Methods    []string `json:"methods,omitempty"`
	ClientName string   `json:"client,omitempty"`
	User       string   `json:"user,omitempty"`
	Connection uint64   `json:"connection,omitempty"`
	After      uint64   `json:"after,omitempty"`  // only records after the one with this number
	Follow     bool     `json:"follow,omitempty"` // go on with new records
}

// Record is a request, or an event of a stream.
type Record struct {
	Point
	Number     uint64   `json:"number"`
	Event      string   `json:"event"` // request, opened, progress or ended
	Method     string   `json:"method"`
	ClientName string   `json:"client"`
	User       string   `json:"user"`
	Connection uint64   `json:"connection"`
	Keys       []Range  `json:"keys"`
	MoreKeys   uint64   `json:"more_keys"`
	Code       string   `json:"code"` // such as OK
	Error      string   `json:"error"`
	Duration   Duration `json:"duration"`
	Rule       uint64   `json:"rule"` // the fault that has decided; 0 for none
	Watch      uint64   `json:"watch"`
	Lag        int64    `json:"lag"`
	Dropped    uint64   `json:"dropped"` // records before this one that are not in the journal any more
}

// JournalLines writes the journal with the requests as JSON, one record in each line, for `revstore ctl journal replay`.
func (c *Client) JournalLines(ctx context.Context, to io.Writer) error {
	body, err := c.open(ctx, "JournalRead", "application/json", strings.NewReader(`{"requests": true}`))
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(to, body)
	return err
}

// Journal returns the records that a filter selects. With Follow the sequence ends with the context.
func (c *Client) Journal(ctx context.Context, filter JournalFilter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		text, err := json.Marshal(filter)
		if err != nil {
			yield(Record{}, err)
			return
		}
		body, err := c.open(ctx, "JournalRead", "application/json", bytes.NewReader(text))
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer body.Close()
		lines := json.NewDecoder(body)
		for {
			var record Record
			err := lines.Decode(&record)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				err = fmt.Errorf("control: the journal: %w", err)
			}
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}
