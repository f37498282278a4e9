// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lab.invalid/sim/driverpod"
)

const (
	startCommand = "env LD_LIBRARY_PATH=/usr/lib64/nvidia/gridd:/usr/lib/x86_64-linux-gnu/nvidia/gridd nvidia-gridd"
	noLibrary    = "nvidia-gridd: error while loading shared libraries: libFlxCore64.so: cannot open shared object file: No such file or directory\n"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newContainer returns a running container with a token; its daemon is licensed.
func newContainer(t *testing.T) driverpod.Folder {
	t.Helper()
	base := t.TempDir()
	folder := driverpod.Folder(filepath.Join(base, "ns_driver_1"))
	must(t, os.Mkdir(filepath.Join(base, driverpod.EventsFolder), 0o700))
	must(t, folder.Create())
	must(t, os.WriteFile(folder.File(driverpod.ConfigPath), []byte("FeatureType=1\n"), 0o600))
	must(t, os.WriteFile(folder.File(driverpod.TokenPath), []byte("old"), 0o600))
	must(t, folder.StartDaemon())
	daemon, err := folder.Daemon()
	must(t, err)
	must(t, folder.SetState(driverpod.State{Skew: time.Hour, StopTime: time.Second, Licensed: true, PID: daemon.PID, Status: "Licensed (Expiry: Permanent)",
		Query: "    License Status : " + driverpod.StatusMark + "\n"}))
	return folder
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run returns the exit status and both outputs of a command.
func run(t *testing.T, folder driverpod.Folder, at time.Time, in, command string) (int, string) {
	t.Helper()
	state, err := folder.State()
	must(t, err)
	var out bytes.Buffer
	s := session{folder: folder, state: state, now: at, in: strings.NewReader(in), out: &out, err: &out}
	return s.run(strings.Fields(command)), out.String()
}

func TestCommands(t *testing.T) {
	const conf, token = driverpod.ConfigPath, driverpod.TokenPath
	folder := newContainer(t)
	for _, step := range []struct {
		after   time.Duration
		command string
		status  int
		output  string
	}{
		{0, "nvidia-smi -q", 0, "    License Status : Licensed (Expiry: Permanent)\n"},
		{0, "date -u +%s", 0, "1767326645\n"},
		{0, "mv " + token + ".new " + token, 1, "mv: cannot stat '" + token + ".new': No such file or directory\n"},
		{0, "cp /dev/stdin " + token + ".new", 0, ""},
		{0, "mv " + token + ".new " + token, 0, ""},
		{0, "cp /dev/stdin " + conf + ".new", 0, ""},
		{0, "rm -f " + conf + ".new " + token + ".new", 0, ""},
		{0, "mv " + conf + ".new " + conf, 1, "mv: cannot stat '" + conf + ".new': No such file or directory\n"},
		{0, startCommand, 1, "nvidia-gridd: already running (412)\n"},
		{0, "cat " + driverpod.PIDPath, 0, "412\n"},
		{0, "cat /proc/412/comm", 0, "nvidia-gridd\n"},
		{0, "cat /proc/411/comm", 1, "cat: /proc/411/comm: No such file or directory\n"},
		{0, "cat /proc/self/comm", 127, ""},
		{0, "kill -TERM 411", 1, "kill: (411) - No such process\n"},
		{0, "kill -TERM 412", 0, ""},
		{0, "nvidia-smi -q", 0, "    License Status : Unlicensed (Unrestricted)\n"},
		{0, startCommand, 1, "nvidia-gridd: already running (412)\n"},
		{0, "cat " + driverpod.PIDPath, 0, "412\n"},
		{time.Second, "cat " + driverpod.PIDPath, 1, "cat: " + driverpod.PIDPath + ": No such file or directory\n"},
		{time.Second, "cat /proc/412/comm", 1, "cat: /proc/412/comm: No such file or directory\n"},
		{time.Second, "kill -TERM 412", 1, "kill: (412) - No such process\n"},
		{time.Second, "nvidia-gridd", 127, noLibrary},
		{time.Second, "env LD_LIBRARY_PATH=/usr/lib64 nvidia-gridd", 127, noLibrary},
		{time.Second, "env X=/usr/lib64/nvidia/gridd nvidia-gridd", 127, noLibrary},
		{time.Second, startCommand, 0, ""},
		{time.Second, "cat " + driverpod.PIDPath, 0, "413\n"},
		{time.Second, "nvidia-smi -q", 0, "    License Status : Unlicensed (Unrestricted)\n"},
		{0, "cat /etc/passwd", 127, "cat /etc/passwd: command not found in this lab\n"},
		{0, "cp /etc/passwd " + token + ".new", 127, ""},
		{0, "cp /dev/stdin " + token, 127, ""},
		{0, "cp /dev/stdin /etc/nvidia/../../../x.new", 127, ""},
		{0, "mv " + token + ".new " + conf, 127, ""},
		{0, "sha256sum /etc/passwd", 127, ""},
		{0, "rm -f " + token, 127, ""},
		{0, "rm " + token + ".new", 127, ""},
		{0, "kill -9 413", 127, ""},
		{0, "nvidia-smi", 127, ""},
		{0, "env LD_LIBRARY_PATH=/usr/lib64/nvidia/gridd sh", 127, ""},
		{0, "env nvidia-gridd", 127, ""},
		{0, "sh -c true", 127, "sh -c true: command not found in this lab\n"},
		{0, "", 127, ""},
	} {
		status, output := run(t, folder, start.Add(step.after), "new", step.command)
		matches := output == step.output || step.status == unknown && step.output == "" && strings.HasSuffix(output, ": command not found in this lab\n")
		if status != step.status || !matches {
			t.Errorf("%s: %d %q", step.command, status, output)
		}
	}
	daemon, err := folder.Daemon()
	if err != nil || string(daemon.Token) != "new" || string(daemon.Config) != "FeatureType=1\n" {
		t.Errorf("the daemon has read %v %v", daemon, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(string(folder)), driverpod.EventsFolder, "ns_driver_1")); err != nil {
		t.Error("the simulator was not notified of the restart")
	}
}

func TestAKilledDaemonLeavesItsFile(t *testing.T) {
	folder := newContainer(t)
	for _, step := range []struct {
		command string
		output  string
	}{
		{"kill -KILL 412", ""},
		{"nvidia-smi -q", "    License Status : Unlicensed (Unrestricted)\n"},
		{"cat " + driverpod.PIDPath, "412\n"},
		{"cat /proc/412/comm", "sleep\n"},
		{startCommand, ""},
		{"cat " + driverpod.PIDPath, "413\n"},
		{"cat /proc/413/comm", "nvidia-gridd\n"},
		{"cat /proc/412/comm", "sleep\n"},
		{"kill -TERM 412", ""},
	} {
		if status, output := run(t, folder, start, "", step.command); status != 0 || output != step.output {
			t.Errorf("%s: %d %q", step.command, status, output)
		}
	}
	if status, _ := run(t, folder, start, "", "cat /proc/412/comm"); status != 1 {
		t.Error("the other process exists after SIGTERM")
	}
}

func TestSums(t *testing.T) {
	folder := newContainer(t)
	_, output := run(t, folder, start, "", "sha256sum "+driverpod.TokenPath)
	// printf old | sha256sum
	if want := "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4  " + driverpod.TokenPath + "\n"; output != want {
		t.Errorf("%q, want %q", output, want)
	}
	must(t, os.Remove(folder.File(driverpod.TokenPath)))
	status, output := run(t, folder, start, "", "sha256sum "+driverpod.TokenPath+" "+driverpod.ConfigPath)
	if lines := strings.Split(output, "\n"); status != 1 || lines[0] != "sha256sum: "+driverpod.TokenPath+": No such file or directory" || !strings.HasSuffix(lines[1], driverpod.ConfigPath) {
		t.Errorf("%d %q", status, output)
	}
}

func TestConnections(t *testing.T) {
	const command = "curl -sSkg -o /dev/null -m 10 -w"
	folder := newContainer(t)
	check := func(layer string, wanted int, output string, ending ...string) {
		t.Helper()
		state, err := folder.State()
		must(t, err)
		state.Unreachable = layer
		var out bytes.Buffer
		s := session{folder: folder, state: state, now: start, in: strings.NewReader(""), out: &out, err: &out}
		times := []string{"%{time_namelookup} %{time_connect} %{time_appconnect}"}
		if status := s.run(append(append(strings.Fields(command), times...), ending...)); status != wanted || !strings.Contains(out.String(), output) {
			t.Errorf("%s %v: %d %q", layer, ending, status, out.String())
		}
	}
	direct := []string{"--noproxy", "*", "https://dls.example.com:443/"}
	check("", 0, "0.002104 0.003512 0.012875", direct...)
	check("", 0, "0.002104 0.003512 0.012875", "--proxy", "http://proxy:3128", "https://dls.example.com:443/")
	check("dns", 6, "curl: (6) Could not resolve host: dls.example.com\n", direct...)
	check("tcp", 28, "curl: (28) Failed to connect to dls.example.com port 443: Connection timed out\n", direct...)
	check("tls", 35, "curl: (35) ", direct...)
	check("", unknown, "not found", "--noproxy", "*", "http://dls.example.com/")
	check("", unknown, "not found", "--noproxy", "*", "https://dls.example.com/", "-v")
	check("", unknown, "not found", "-o", "/etc/passwd", "https://dls.example.com/")
}

func TestAContainerWithoutLicense(t *testing.T) {
	folder := newContainer(t)
	must(t, folder.SetState(driverpod.State{Query: "    License Status : N/A\n"}))
	if status, output := run(t, folder, start, "", "nvidia-smi -q"); status != 0 || output != "    License Status : N/A\n" {
		t.Errorf("%d %q", status, output)
	}
	if status, _ := run(t, folder, start, "", startCommand); status != unknown {
		t.Errorf("nvidia-gridd: %d", status)
	}
}
