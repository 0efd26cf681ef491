package kubernetes

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// traffic records what clients send and get, and disturbs their watches.
type traffic struct {
	mutex sync.Mutex
	// The media types of requests with a body, and of answers.
	sent, answered []string
	open           map[*disturbed]bool
	expired        bool
	// The resource version with which the next watches from a version begin, once.
	outdated string
}

// cut ends all watches that are open: with an error, or as the server ends them after their time.
func (t *traffic) cut(withError bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for body := range t.open {
		body.isEnded.Store(!withError)
		_ = body.ReadCloser.Close()
	}
}

// outdate makes the next watch that resumes begin at this version instead.
func (t *traffic) outdate(version string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.outdated = version
}

// hasExpired returns whether a watch has got 410, as its status or as an event.
func (t *traffic) hasExpired() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.expired
}

type recorder struct {
	inner   http.RoundTripper
	traffic *traffic
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	isWatch := query.Get("watch") != ""
	t := r.traffic
	t.mutex.Lock()
	if request.Body != nil && request.Body != http.NoBody {
		t.sent = append(t.sent, request.Header.Get("Content-Type"))
	}
	if isWatch && t.outdated != "" && query.Get("resourceVersion") != "" && query.Get("sendInitialEvents") == "" {
		query.Set("resourceVersion", t.outdated)
		t.outdated = ""
		request = request.Clone(request.Context())
		request.URL.RawQuery = query.Encode()
	}
	t.mutex.Unlock()
	response, err := r.inner.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.answered = append(t.answered, response.Header.Get("Content-Type"))
	if isWatch {
		t.expired = t.expired || response.StatusCode == http.StatusGone
		body := &disturbed{ReadCloser: response.Body, traffic: t}
		if t.open == nil {
			t.open = map[*disturbed]bool{}
		}
		t.open[body] = true
		response.Body = body
	}
	return response, nil
}

// disturbed is the body of a watch, which can be cut.
type disturbed struct {
	io.ReadCloser
	traffic *traffic
	isEnded atomic.Bool
}

func (d *disturbed) Read(into []byte) (int, error) {
	count, err := d.ReadCloser.Read(into)
	if bytes.Contains(into[:count], []byte(`"code":410`)) {
		d.traffic.mutex.Lock()
		defer d.traffic.mutex.Unlock()
		d.traffic.expired = true
	}
	if err != nil && d.isEnded.Load() {
		err = io.EOF
	}
	return count, err
}

func (d *disturbed) Close() error {
	d.traffic.mutex.Lock()
	delete(d.traffic.open, d)
	d.traffic.mutex.Unlock()
	return d.ReadCloser.Close()
}
