package clients

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy forwards connections of a client to a server until a test closes them.
type proxy struct {
	listener net.Listener
	target   string

	mu sync.Mutex
	// Guarded by mu. While closed is set, new connections are closed immediately.
	closed bool
	conns  []net.Conn
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target}
	t.Cleanup(func() {
		_ = listener.Close()
		p.disconnect()
	})
	go p.accept()
	return p
}

func (p *proxy) address() string {
	return p.listener.Addr().String()
}

// disconnect closes all connections, and closes new connections until reconnect is called.
func (p *proxy) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

// reconnect accepts connections again.
func (p *proxy) reconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = false
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if p.admit(client, upstream) {
			go relay(client, upstream)
			go relay(upstream, client)
		} else {
			_ = client.Close()
			_ = upstream.Close()
		}
	}
}

func (p *proxy) admit(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns = append(p.conns, conns...)
	return true
}

func relay(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_ = from.Close()
	_ = to.Close()
}
