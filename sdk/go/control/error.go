package control

import "fmt"

// Code is a code of gRPC.
type Code int

// The codes with which control refuses requests.
const (
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Unauthenticated    Code = 16
)

// Error is a request that the server refused. Use errors.As to get it.
type Error struct {
	Method string `json:"-"`
	Code   Code   `json:"code"`
	Text   string `json:"error"`
}

func (e *Error) Error() string {
	return fmt.Sprintf("control: %s: %s (code %d)", e.Method, e.Text, e.Code)
}
