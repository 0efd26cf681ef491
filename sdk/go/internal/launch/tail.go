package launch

import "sync"

// tailBytes is the size of a server's output that is kept, the end of it.
const tailBytes = 256 << 10

// tail is a writer that keeps the end of what was written. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	if excess := len(t.text) - tailBytes; excess > 0 {
		t.text = append(t.text[:0], t.text[excess:]...)
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
