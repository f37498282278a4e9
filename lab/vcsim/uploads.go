// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
)

// loadCertificates returns the certificate of the vCenter; without files it is made by the simulator.
func (c *vCenter) loadCertificates(chosen options) ([]tls.Certificate, error) {
	if chosen.certificate == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(chosen.certificate, chosen.key)
	if err != nil {
		return nil, err
	}
	c.certificate = &pair
	return []tls.Certificate{pair}, nil
}

// hostCertificate returns the certificate of the ESXi hosts; nil if uploads go to a vCenter whose certificate is the simulator's.
func (c *vCenter) hostCertificate() *tls.Certificate {
	if _, untrusted := c.fault(untrustedCertificate); untrusted && c.selfSigned != nil || c.certificate == nil {
		return c.selfSigned
	}
	return c.certificate
}

// thumbprint returns the SHA-1 of the ESXi hosts' certificate, as leases contain it.
func (c *vCenter) thumbprint() string {
	found := c.hostCertificate()
	if found == nil {
		return ""
	}

	var parts []string
	for _, one := range sha1.Sum(found.Certificate[0]) {
		parts = append(parts, fmt.Sprintf("%02X", one))
	}
	return strings.Join(parts, ":")
}

// serveHosts serves the uploads at the address of the ESXi hosts, and returns the address. Their certificate is the vCenter's: both come from one
// authority. With the fault untrusted-certificate, or without a certificate, it is a self-signed one.
func (c *vCenter) serveHosts(address string) (string, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if c.selfSigned, err = selfSigned(host); err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	choose := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.hostCertificate(), nil }
	mux := http.NewServeMux()
	mux.HandleFunc("/nfc/", c.serveUpload)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		_ = server.Serve(tls.NewListener(&hostListener{listener, c}, &tls.Config{GetCertificate: choose}))
	}()
	return listener.Addr().String(), nil
}

// serveImages serves the files of a folder, with Content-Length and ranges, and returns the address.
func serveImages(address, folder string) (string, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(folder)), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), nil
}

// hostListener closes all connections while the fault uploads-refused is injected.
type hostListener struct {
	net.Listener
	center *vCenter
}

// Accept returns the next connection.
func (l *hostListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if _, refused := l.center.fault(uploadsRefused); !refused {
			return connection, nil
		}
		_ = connection.Close()
	}
}

func selfSigned(host string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost.localdomain"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), IPAddresses: []net.IP{net.ParseIP(host)},
	}
	content, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{content}, PrivateKey: key}, nil
}

// limited slows or cuts the body of an upload.
type limited struct {
	io.ReadCloser
	rate int64 // bytes per second; 0: no limit
	left int64 // bytes until the end; negative: no end
	fail bool  // end with an HTTP error instead of a closed connection
}

// Read reads at most what the limits allow.
func (r *limited) Read(data []byte) (int, error) {
	if r.left == 0 {
		if r.fail {
			return 0, io.ErrUnexpectedEOF
		}
		panic(http.ErrAbortHandler) // closes the connection
	}
	if r.rate > 0 && int64(len(data)) > r.rate/10+1 {
		data = data[:r.rate/10+1]
	}
	if r.left > 0 && int64(len(data)) > r.left {
		data = data[:r.left]
	}
	n, err := r.ReadCloser.Read(data)
	if r.left > 0 {
		r.left -= int64(n)
	}
	if r.rate > 0 {
		time.Sleep(time.Duration(float64(n) / float64(r.rate) * float64(time.Second)))
	}
	return n, err
}

// serveUpload receives a disk, with the faults of uploads.
func (c *vCenter) serveUpload(w http.ResponseWriter, r *http.Request) {
	body := &limited{ReadCloser: r.Body, left: -1}
	number := func(text string) int64 { n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64); return n }
	if value, set := c.fault(uploadSlow); set {
		body.rate = number(value)
	}
	if value, set := c.fault(uploadCut); set {
		body.left = number(value)
	}
	if value, set := c.fault(uploadError); set {
		body.left, body.fail = number(value), true
	}
	if _, set := c.fault(sessionExpiresUpload); set {
		c.expireSessions()
	}
	r.Body = body
	simulator.ServeNFC(w, r)
}
