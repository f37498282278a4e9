// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// LicenseAnnotation contains the license state of a vGPU node while a driver pod runs on it.
const LicenseAnnotation = "lab.accel.gpu/license"

// The license states of `nvidia-smi -q`. Without a license a vGPU has its full performance for 20 minutes (NVIDIA, Virtual GPU
// Client Licensing User Guide, "How NVIDIA vGPU Software Licensing Is Enforced"; NVIDIA/gpu-driver-container pull request 881).
const (
	Licensed     = "Licensed"
	Unrestricted = "Unlicensed (Unrestricted)"
	Restricted   = "Unlicensed (Restricted)"
	LicenseGrace = 20 * time.Minute
)

// LeaseTime is the default duration of a lease, which the client renews before (NVIDIA License System User Guide); the lab
// renews it after half of the time.
const LeaseTime = 24 * time.Hour

// ClockTolerance is the deviation of the clocks of client and server up to which responses are accepted. NVIDIA documents none;
// this is a value of the lab.
const ClockTolerance = 5 * time.Minute

// GriddStop is how long nvidia-gridd needs to return its lease and to end after SIGTERM. NVIDIA's driver container waits for up to
// five seconds (pull request 254 of NVIDIA/gpu-driver-container).
const GriddStop = time.Second

const defaultLicensePort = 443

// License is the license state of a node.
type License struct {
	Status  string `json:"status"`
	Product string `json:"product"`
	// Expiry is the end of the lease by the node's clock.
	Expiry      string `json:"expiry,omitempty"`
	TokenSHA256 string `json:"token_sha256,omitempty"`
	Server      string `json:"server,omitempty"`
	// Since is when the node got its license, or when it lost it.
	Since string `json:"since"`
	// Reason is why there is no license.
	Reason string `json:"reason,omitempty"`
	// Driver identifies the start of the driver's container, and PID its process of nvidia-gridd.
	Driver string `json:"driver"`
	PID    int    `json:"pid,omitempty"`
}

// LicenseClient is nvidia-gridd on a node.
type LicenseClient struct {
	// Profile is the vGPU type, such as A100-10C.
	Profile string
	// Driver identifies the start of the driver's container, and PID the running process; 0 if there is none.
	Driver string
	PID    int
	// Config and Token are the files that it has read when it started; nil if they did not exist.
	Config, Token []byte
	Faults        Faults
	// Now is the real time, from which the node's clock deviates by a fault.
	Now time.Time
	// Grace is the duration of full performance without a license.
	Grace time.Duration
}

// ParseLicense parses the annotation; it returns nil for an empty or an invalid one.
func ParseLicense(annotation string) *License {
	var l License
	if annotation == "" || json.Unmarshal([]byte(annotation), &l) != nil {
		return nil
	}
	return &l
}

// ClockSkew returns by how much the node's clock is fast.
func (f Faults) ClockSkew() time.Duration {
	seconds, err := strconv.ParseInt(f[LicenseClockSkew], 10, 32)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// UnreachableLayer returns where connections to license servers fail (dns, tcp or tls); empty if they succeed.
func (f Faults) UnreachableLayer() string {
	if layer := f[LicenseUnreachable]; layer != "" || !f.Has(LicenseUnreachable) {
		return layer
	}
	return "tcp"
}

// Next returns the license state after the former one (nil: the driver has just been loaded), and when it must be computed again
// (zero: only after a change). A license remains valid until the end of its lease even if the server cannot be reached; a client
// without a license tries again all the time.
func (c LicenseClient) Next(before *License) (License, time.Time) {
	skew := c.Faults.ClockSkew()
	clock := c.Now.Add(skew)
	next := License{Product: product(c.Profile), Driver: c.Driver, PID: c.PID}
	if before != nil && before.Driver != c.Driver {
		before = nil
	}
	if before != nil {
		next.Since = before.Since
	}
	held := before != nil && before.Status == Licensed && before.PID == c.PID && c.PID != 0 && clock.Before(parseTime(before.Expiry))
	if c.Token != nil {
		sum := sha256.Sum256(c.Token)
		next.TokenSHA256 = hex.EncodeToString(sum[:])
	}
	if held && clock.Before(parseTime(before.Expiry).Add(-LeaseTime/2)) {
		return *before, parseTime(before.Expiry).Add(-LeaseTime / 2).Add(-skew)
	}
	token, err := c.acquire(clock)
	if err == nil {
		end := clock.Add(LeaseTime)
		if token.Expires != nil && token.Expires.Before(end) {
			end = *token.Expires
		}
		next.Status, next.Expiry, next.Server = Licensed, formatTime(end), token.Servers[0].host
		if !held {
			next.Since = formatTime(c.Now)
		}
		if renewal := end.Add(-LeaseTime / 2); renewal.After(clock) {
			return next, renewal.Add(-skew)
		}
		return next, end.Add(-skew)
	}
	if held {
		return *before, parseTime(before.Expiry).Add(-skew)
	}
	if before == nil || before.Status == Licensed {
		next.Since = formatTime(c.Now)
	}
	next.Status, next.Reason = Unrestricted, err.Error()
	var again time.Time
	if token != nil && token.NotBefore != nil && clock.Before(*token.NotBefore) {
		again = token.NotBefore.Add(-skew)
	}
	if end := parseTime(next.Since).Add(c.Grace); !c.Now.Before(end) {
		next.Status = Restricted
	} else if again.IsZero() || end.Before(again) {
		again = end
	}
	return next, again
}

// acquire returns the token with which the client gets a license, or why it gets none.
func (c LicenseClient) acquire(clock time.Time) (*clientToken, error) {
	if c.PID == 0 {
		return nil, errors.New("nvidia-gridd is not running")
	}
	if c.Config == nil {
		return nil, errors.New("/etc/nvidia/gridd.conf does not exist")
	}
	if err := checkFeature(c.Config, c.Profile); err != nil {
		return nil, err
	}
	if c.Token == nil {
		return nil, errors.New("there is no client configuration token in /etc/nvidia/ClientConfigToken")
	}
	token, err := parseToken(c.Token)
	if err != nil {
		return nil, err
	}
	switch {
	case token.NotBefore != nil && clock.Before(*token.NotBefore):
		return token, fmt.Errorf("the client configuration token is not valid before %s", formatTime(*token.NotBefore))
	case token.Expires != nil && !clock.Before(*token.Expires):
		return token, fmt.Errorf("the client configuration token expired at %s", formatTime(*token.Expires))
	case len(token.Servers) == 0:
		return token, errors.New("the client configuration token names no license server")
	case c.Faults.Has(LicenseUnreachable):
		return token, fmt.Errorf("the license server %s cannot be reached: connection timed out", token.Servers[0])
	case c.Faults.ClockSkew() > ClockTolerance:
		return token, errors.New("the allowed time to process response has expired: the clocks of the node and of the license server differ")
	case c.Faults.ClockSkew() < -ClockTolerance:
		return token, errors.New("clock windback has been detected: the clocks of the node and of the license server differ")
	case c.Faults.Has(LicenseDenied):
		return token, fmt.Errorf("the license server %s has no license left for %s", token.Servers[0], product(c.Profile))
	}
	return token, nil
}

// Products by the last letter of a vGPU type (Client Licensing User Guide, "NVIDIA vGPU Software Licensed Products"). A type without
// a letter is one for compute.
var products = map[string]string{"Q": "NVIDIA RTX Virtual Workstation", "C": "NVIDIA Virtual Compute Server", "B": "NVIDIA Virtual PC", "A": "NVIDIA Virtual Applications"}

func seriesOf(profile string) string {
	if last := profile[max(len(profile)-1, 0):]; products[last] != "" {
		return last
	}
	return "C"
}

func product(profile string) string {
	return products[seriesOf(profile)]
}

// checkFeature returns why the feature type of gridd.conf does not fit a vGPU type. 1 selects the license by the type, as does an
// empty file; 2 is RTX vWS and 4 is vCS (Client Licensing User Guide, "Settings in gridd.conf").
func checkFeature(config []byte, profile string) error {
	feature := "1"
	lines := bufio.NewScanner(strings.NewReader(string(config)))
	for lines.Scan() {
		if key, value, found := strings.Cut(lines.Text(), "="); found && strings.TrimSpace(key) == "FeatureType" {
			feature = strings.TrimSpace(value)
		}
	}
	fits := map[string]string{"1": "QCBA", "2": "Q", "4": "C"}
	fitting, known := fits[feature]
	switch {
	case feature == "0":
		return errors.New("FeatureType=0 in gridd.conf requests no license")
	case !known:
		return fmt.Errorf("FeatureType=%s in gridd.conf is unknown", feature)
	case !strings.Contains(fitting, seriesOf(profile)):
		return fmt.Errorf("FeatureType=%s in gridd.conf does not fit the series %s of the vGPU", feature, seriesOf(profile))
	}
	return nil
}

// clientToken contains the claims of a client configuration token that matter; claims may be missing.
type clientToken struct {
	NotBefore, Expires *time.Time
	Servers            []licenseServer
}

type licenseServer struct {
	host string
	port int
}

func (s licenseServer) String() string {
	return net.JoinHostPort(s.host, strconv.Itoa(s.port))
}

// parseToken reads a token: a JSON Web Token signed with RS256. Its claims are not documented; independent implementations of the
// server agree on these. The signature is not checked, because the key of the server is only known from the token itself.
func parseToken(text []byte) (*clientToken, error) {
	invalid := errors.New("the client configuration token is not a signed JSON Web Token")
	parts := strings.Split(strings.TrimSpace(string(text)), ".")
	if len(parts) != 3 || parts[2] == "" {
		return nil, invalid
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	var claims struct {
		NotBefore *float64 `json:"nbf"`
		Expires   *float64 `json:"exp"`
		Instance  struct {
			Ports []struct {
				Index int `json:"idx"`
				Map   []struct {
					Service string `json:"service"`
					Port    int    `json:"port"`
				} `json:"svc_port_map"`
			} `json:"svc_port_set_list"`
			Nodes []struct {
				URL   string `json:"url"`
				Ports int    `json:"svc_port_set_idx"`
			} `json:"node_url_list"`
		} `json:"service_instance_configuration"`
	}
	if decodePart(parts[0], &header) != nil || header.Algorithm != "RS256" || decodePart(parts[1], &claims) != nil {
		return nil, invalid
	}
	token := &clientToken{NotBefore: instant(claims.NotBefore), Expires: instant(claims.Expires)}
	for _, node := range claims.Instance.Nodes {
		server := licenseServer{host: node.URL, port: defaultLicensePort}
		for _, set := range claims.Instance.Ports {
			for _, entry := range set.Map {
				if set.Index == node.Ports && entry.Service == "lease" {
					server.port = entry.Port
				}
			}
		}
		if server.host != "" {
			token.Servers = append(token.Servers, server)
		}
	}
	return token, nil
}

func decodePart(part string, into any) error {
	content, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(part, "="))
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func instant(seconds *float64) *time.Time {
	if seconds == nil {
		return nil
	}
	at := time.Unix(int64(*seconds), 0)
	return &at
}

func formatTime(at time.Time) string {
	return at.UTC().Format(time.RFC3339)
}

func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// Shown returns the license status as `nvidia-smi -q` prints it: day, month and hour without leading zeros.
func (l License) Shown() string {
	if l.Status != Licensed {
		return l.Status
	}
	end := parseTime(l.Expiry)
	return fmt.Sprintf("%s (Expiry: %d-%d-%d %d:%02d:%02d GMT)", l.Status, end.Year(), end.Month(), end.Day(), end.Hour(), end.Minute(), end.Second())
}
