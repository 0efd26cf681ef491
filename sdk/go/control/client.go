// Package control moves the time of a server, makes its calls fail, holds its watches, copies its store, and reads what
// happened.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Client sends requests to the control port of a server. It is safe for concurrent use.
type Client struct {
	url  string
	http *http.Client
}

// New returns a client of the control port with a URL, such as http://127.0.0.1:2378.
func New(url string) *Client {
	// Control is never reached through a proxy.
	return &Client{url: strings.TrimSuffix(url, "/"), http: &http.Client{Transport: &http.Transport{}}}
}

// URL returns the URL of the control port.
func (c *Client) URL() string { return c.url }

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Point is the point at which a request took effect.
type Point struct {
	Revision int64    `json:"revision"`
	Time     Duration `json:"time"`
}

// Duration is a duration, or a time since the start of the server's clock.
type Duration struct{ time.Duration }

// MarshalText writes a duration such as 1m30s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration such as 1m30s.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	d.Duration = parsed
	return err
}

// Call sends a request of any method, for what this package has no function for.
func (c *Client) Call(ctx context.Context, method string, request, response any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	body, err := c.open(ctx, method, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(response); err != nil {
		return fmt.Errorf("control: the answer to %s: %w", method, err)
	}
	return nil
}

// open sends a request and returns the body of the answer.
func (c *Client) open(ctx context.Context, method, kind string, request io.Reader) (io.ReadCloser, error) {
	if c == nil {
		return nil, errors.New("control: the server was started without control")
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/control/v1/"+method, request)
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", kind)
	response, err := c.http.Do(post)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	refused := &Error{Method: method}
	if err := json.NewDecoder(response.Body).Decode(refused); err != nil {
		return nil, fmt.Errorf("control: %s: %s", method, response.Status)
	}
	return nil, refused
}
