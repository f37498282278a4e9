// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

var licenseStart = time.Date(2026, 1, 4, 4, 2, 1, 0, time.UTC)

// tokenWith returns a token of the server dls.example.com with these times, relative to licenseStart.
func tokenWith(notBefore, expires time.Duration, servers ...string) []byte {
	nodes := []any{}
	for _, server := range servers {
		nodes = append(nodes, map[string]any{"url": server, "svc_port_set_idx": 0})
	}
	claims := map[string]any{"nbf": licenseStart.Add(notBefore).Unix(), "exp": licenseStart.Add(expires).Unix(), "service_instance_configuration": map[string]any{
		"node_url_list": nodes, "svc_port_set_list": []any{map[string]any{"idx": 0, "svc_port_map": []any{map[string]any{"service": "lease", "port": 8082}}}}}}
	return encodeToken(claims)
}

func encodeToken(claims any) []byte {
	part := func(value any) string {
		text, _ := json.Marshal(value)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return []byte(part(map[string]string{"alg": "RS256", "typ": "JWT"}) + "." + part(claims) + ".c2lnbmF0dXJl")
}

func TestLicense(t *testing.T) {
	const day = 24 * time.Hour
	valid := tokenWith(-day, 365*day, "dls.example.com")
	for _, test := range []struct {
		name, profile, config string
		token                 []byte
		faults                string
		status, reason        string
	}{
		{"an empty gridd.conf", "A100-10C", "", valid, "", Licensed, ""},
		{"the type selects the license", "T4-16Q", "FeatureType=1", valid, "", Licensed, ""},
		{"vWS", "T4-16Q", "# a comment\nFeatureType = 2\n", valid, "", Licensed, ""},
		{"vCS", "A100-10C", "FeatureType=4", valid, "", Licensed, ""},
		{"vWS for a type of compute", "A100-10C", "FeatureType=2", valid, "", Unrestricted, "FeatureType=2 in gridd.conf does not fit the series C of the vGPU"},
		{"vCS for a workstation", "T4-16Q", "FeatureType=4", valid, "", Unrestricted, "FeatureType=4 in gridd.conf does not fit the series Q of the vGPU"},
		{"vCS for a PC", "T4-2B", "FeatureType=4", valid, "", Unrestricted, "FeatureType=4 in gridd.conf does not fit the series B of the vGPU"},
		{"an application", "T4-8A", "FeatureType=1", valid, "", Licensed, ""},
		{"no license wanted", "T4-16Q", "FeatureType=0", valid, "", Unrestricted, "FeatureType=0 in gridd.conf requests no license"},
		{"an unknown feature", "T4-16Q", "FeatureType=9", valid, "", Unrestricted, "FeatureType=9 in gridd.conf is unknown"},
		{"no gridd.conf", "T4-16Q", "-", valid, "", Unrestricted, "/etc/nvidia/gridd.conf does not exist"},
		{"no token", "T4-16Q", "", nil, "", Unrestricted, "there is no client configuration token in /etc/nvidia/ClientConfigToken"},
		{"an empty token", "T4-16Q", "", []byte{}, "", Unrestricted, "the client configuration token is not a signed JSON Web Token"},
		{"half of a token", "T4-16Q", "", valid[:len(valid)/2], "", Unrestricted, "the client configuration token is not a signed JSON Web Token"},
		{"expired", "T4-16Q", "", tokenWith(-2*day, -day, "dls.example.com"), "", Unrestricted, "the client configuration token expired at 2026-01-03T04:02:01Z"},
		{"not yet valid", "T4-16Q", "", tokenWith(day, 2*day, "dls.example.com"), "", Unrestricted, "the client configuration token is not valid before 2026-01-05T04:02:01Z"},
		{"no claims", "T4-16Q", "", encodeToken(map[string]any{}), "", Unrestricted, "the client configuration token names no license server"},
		{"no times", "T4-16Q", "", encodeToken(map[string]any{"service_instance_configuration": map[string]any{"node_url_list": []any{map[string]any{"url": "x"}}}}), "", Licensed, ""},
		{"no connection", "T4-16Q", "", valid, LicenseUnreachable, Unrestricted, "the license server dls.example.com:8082 cannot be reached: connection timed out"},
		{"no license left", "T4-16Q", "", valid, LicenseDenied, Unrestricted, "the license server dls.example.com:8082 has no license left for NVIDIA RTX Virtual Workstation"},
		{"a fast clock", "T4-16Q", "", valid, LicenseClockSkew + "=3600", Unrestricted, "the allowed time to process response has expired: the clocks of the node and of the license server differ"},
		{"a slow clock", "T4-16Q", "", valid, LicenseClockSkew + "=-3600", Unrestricted, "clock windback has been detected: the clocks of the node and of the license server differ"},
		{"a tolerable clock", "T4-16Q", "", valid, LicenseClockSkew + "=60", Licensed, ""},
		{"a clock after the end of the token", "T4-16Q", "", tokenWith(-day, day, "x"), LicenseClockSkew + "=90000", Unrestricted, "the client configuration token expired at 2026-01-05T04:02:01Z"},
	} {
		client := LicenseClient{Profile: test.profile, PID: 1, Config: []byte(test.config), Token: test.token, Faults: ParseFaults(test.faults), Now: licenseStart, Grace: time.Minute}
		if test.config == "-" {
			client.Config = nil
		}
		got, _ := client.Next(nil)
		if got.Status != test.status || got.Reason != test.reason || got.Since != "2026-01-04T04:02:01Z" {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

func TestALicenseOverTime(t *testing.T) {
	const day = 24 * time.Hour
	token := tokenWith(-day, 30*time.Hour, "dls.example.com")
	var license *License
	for _, step := range []struct {
		name   string
		at     time.Duration
		pid    int
		faults string
		want   string
		expiry string
		since  time.Duration
		again  time.Duration
	}{
		{"acquired", 0, 1, "", Licensed, "2026-01-05T04:02:01Z", 0, 12 * time.Hour},
		{"held while the server cannot be reached", time.Hour, 1, LicenseUnreachable, Licensed, "2026-01-05T04:02:01Z", 0, 12 * time.Hour},
		{"the renewal fails", 13 * time.Hour, 1, LicenseUnreachable, Licensed, "2026-01-05T04:02:01Z", 0, 24 * time.Hour},
		{"renewed until the token expires", 14 * time.Hour, 1, "", Licensed, "2026-01-05T10:02:01Z", 0, 18 * time.Hour},
		{"renewed again", 19 * time.Hour, 1, "", Licensed, "2026-01-05T10:02:01Z", 0, 30 * time.Hour},
		{"the token expires", 30 * time.Hour, 1, "", Unrestricted, "", 30 * time.Hour, 30*time.Hour + time.Minute},
		{"performance is restricted", 30*time.Hour + time.Minute, 1, "", Restricted, "", 30 * time.Hour, 0},
		{"a restart changes nothing", 31 * time.Hour, 2, "", Restricted, "", 30 * time.Hour, 0},
	} {
		client := LicenseClient{Profile: "A100-10C", PID: step.pid, Config: []byte{}, Token: token, Faults: ParseFaults(step.faults), Now: licenseStart.Add(step.at), Grace: time.Minute}
		got, again := client.Next(license)
		wantAgain := time.Time{}
		if step.again != 0 {
			wantAgain = licenseStart.Add(step.again)
		}
		if got.Status != step.want || got.Expiry != step.expiry || got.Since != formatTime(licenseStart.Add(step.since)) || !again.Equal(wantAgain) {
			t.Errorf("%s: %+v, again at %v", step.name, got, again)
		}
		license = &got
	}
}

func TestTheDaemonReturnsItsLicense(t *testing.T) {
	client := LicenseClient{Profile: "A100-10C", PID: 1, Config: []byte{}, Token: tokenWith(0, time.Hour, "x"), Faults: Faults{}, Now: licenseStart, Grace: time.Minute}
	held, _ := client.Next(nil)
	client.PID, client.Config, client.Token, client.Now = 0, nil, nil, licenseStart.Add(time.Second)
	returned, again := client.Next(&held)
	if held.Status != Licensed || returned.Status != Unrestricted || returned.Reason != "nvidia-gridd is not running" || !again.Equal(licenseStart.Add(time.Minute+time.Second)) {
		t.Errorf("%+v %+v %v", held, returned, again)
	}
	client.PID, client.Config, client.Token, client.Faults = 2, []byte{}, tokenWith(0, time.Hour, "y"), ParseFaults(LicenseUnreachable)
	if got, _ := client.Next(&held); got.Status != Unrestricted || got.Server != "" {
		t.Errorf("the license of another process: %+v", got)
	}
	client.Driver, client.Now = "restarted", licenseStart.Add(time.Hour)
	if got, _ := client.Next(&returned); got.Status != Unrestricted || got.Since != formatTime(client.Now) {
		t.Errorf("full performance after a new start of the driver: %+v", got)
	}
}

func TestAFastClockEndsALicense(t *testing.T) {
	client := LicenseClient{Profile: "A100-10C", PID: 1, Config: []byte{}, Token: tokenWith(0, time.Hour, "x"), Faults: Faults{}, Now: licenseStart, Grace: time.Minute}
	held, again := client.Next(nil)
	if !again.Equal(licenseStart.Add(time.Hour)) {
		t.Errorf("again at %v", again)
	}
	client.Faults = ParseFaults(LicenseClockSkew + "=1800")
	still, again := client.Next(&held)
	if still.Status != Licensed || !again.Equal(licenseStart.Add(30*time.Minute)) {
		t.Errorf("%+v again at %v", still, again)
	}
	client.Faults = ParseFaults(LicenseClockSkew + "=3600")
	if got, _ := client.Next(&held); got.Status != Unrestricted || !strings.Contains(got.Reason, "expired at") {
		t.Errorf("%+v", got)
	}
}

func TestLicenseQuery(t *testing.T) {
	guest := a100(1)
	guest.VGPU = &VGPU{Profile: "A100-10C"}
	status := License{Status: Licensed, Expiry: "2026-01-05T04:02:01Z"}.Shown()
	lines := NvidiaSMIQuery("n1", guest, status)
	at := slices.Index(lines, "    vGPU Software Licensed Product")
	want := []string{"        Product Name                      : NVIDIA Virtual Compute Server", "        License Status                    : Licensed (Expiry: 2026-1-5 4:02:01 GMT)"}
	if at < 0 || !slices.Equal(lines[at+1:at+3], want) {
		t.Errorf("%q", lines)
	}
	lines = NvidiaSMIQuery("n1", a100(2), status)
	if count := strings.Count(strings.Join(lines, "\n"), "License Status                    : N/A"); count != 2 {
		t.Errorf("%q", lines)
	}
	if shown := (License{Status: Restricted, Expiry: "x"}).Shown(); shown != Restricted {
		t.Error(shown)
	}
}
