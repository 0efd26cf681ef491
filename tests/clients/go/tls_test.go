package clients

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// authority issues certificates into a directory.
type authority struct {
	t           *testing.T
	directory   string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, directory: t.TempDir()}
	a.issue("ca")
	return a
}

// issue writes NAME.crt and NAME.key, signed by the authority. The first certificate is the authority's own.
func (a *authority) issue(name string) {
	a.t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.certificate, a.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid = true, true
		parent, signer = template, key
	}
	der := must(x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer))(a.t)
	if a.certificate == nil {
		a.certificate, a.key = must(x509.ParseCertificate(der))(a.t), key
	}
	a.write(name+".crt", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key))(a.t))
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	mustDo(a.t, os.WriteFile(a.path(name), text, 0o600))
}

func (a *authority) path(name string) string {
	return filepath.Join(a.directory, name)
}

func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.issue("server")
	ca.issue("client")
	server := start(t,
		"--cert-file="+ca.path("server.crt"), "--key-file="+ca.path("server.key"),
		"--trusted-ca-file="+ca.path("ca.crt"), "--client-cert-auth")

	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	own := must(tls.LoadX509KeyPair(ca.path("client.crt"), ca.path("client.key")))(t)
	client := connect(t, clientv3.Config{
		Endpoints: []string{"https://" + server.address()},
		TLS:       &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}},
	})
	watch := created(t, bounded(t), client, "k")
	put(t, client, "k", "v")
	equalSlices(t, "watched", events(t, watch, 1), []string{"PUT k=v@2"})

	// Without a certificate the connection ends with an alert, before or after its first byte.
	stranger, err := tls.Dial("tcp", server.address(), &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
	if err == nil {
		defer stranger.Close()
		mustDo(t, stranger.SetReadDeadline(time.Now().Add(limit)))
		_, err = stranger.Read(make([]byte, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("served without a client certificate: %v", err)
	}
}
