package clients

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between a client and a server so that a test can cut their connections.
type proxy struct {
	listener net.Listener
	target   string

	mu sync.Mutex
	// Guarded by mu. While cut, whoever connects is turned away at once.
	cut   bool
	conns []net.Conn
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

// disconnect closes all connections and lets none through until reconnect.
func (p *proxy) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

// reconnect lets connections through again.
func (p *proxy) reconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
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
	if p.cut {
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
