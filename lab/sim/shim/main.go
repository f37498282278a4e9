// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command shim answers the commands of `kubectl exec` in the driver pods of a lab, from files that the simulator writes. It runs
// no other program, and opens only the files of one container.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"lab.invalid/sim/driverpod"
)

const (
	unknown = 127
	suffix  = ".new"
	input   = "/dev/stdin"
	gridd   = "nvidia-gridd"
)

// The folders with the private libraries of nvidia-gridd: in images of the RHEL family, and in those of the Debian family.
var libraries = []string{"/usr/lib64/nvidia/gridd", "/usr/lib/x86_64-linux-gnu/nvidia/gridd", "/usr/lib/aarch64-linux-gnu/nvidia/gridd"}

// The files that can be replaced, by a copy with the suffix .new that is renamed.
var replaceable = []string{driverpod.ConfigPath, driverpod.TokenPath}

// session is one exec command.
type session struct {
	folder driverpod.Folder
	state  driverpod.State
	now    time.Time
	in     io.Reader
	out    io.Writer
	err    io.Writer
}

func main() {
	s := session{folder: driverpod.Folder(os.Getenv(driverpod.EnvFolder)), now: time.Now(), in: os.Stdin, out: os.Stdout, err: os.Stderr}
	state, err := s.folder.State()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the container is not running")
		os.Exit(1)
	}
	s.state = state
	os.Exit(s.run(os.Args[1:]))
}

// run executes a command and returns its exit status.
func (s *session) run(command []string) int {
	if len(command) == 0 {
		return s.notFound(command)
	}
	arguments := command[1:]
	switch command[0] {
	case "nvidia-smi":
		if slices.Equal(arguments, []string{"-q"}) {
			return s.query()
		}
	case "sha256sum":
		if len(arguments) > 0 && !slices.ContainsFunc(arguments, func(path string) bool { return !known(path) }) {
			return s.sums(arguments)
		}
	case "date":
		if slices.Equal(arguments, []string{"-u", "+%s"}) {
			fmt.Fprintln(s.out, s.now.Add(s.state.Skew).Unix())
			return 0
		}
	case "cp":
		if len(arguments) == 2 && arguments[0] == input && isNew(arguments[1]) {
			return s.copy(arguments[1])
		}
	case "mv":
		if len(arguments) == 2 && isNew(arguments[0]) && arguments[1]+suffix == arguments[0] {
			return s.move(arguments[0], arguments[1])
		}
	case "rm":
		if len(arguments) > 1 && arguments[0] == "-f" && !slices.ContainsFunc(arguments[1:], func(path string) bool { return !isNew(path) }) {
			return s.remove(arguments[1:])
		}
	case "cat":
		if slices.Equal(arguments, []string{driverpod.PIDPath}) {
			return s.process()
		}
		if pid, ok := commOf(arguments); ok {
			return s.comm(pid)
		}
	case "kill":
		if len(arguments) == 2 && slices.Contains([]string{"-TERM", "-KILL"}, arguments[0]) {
			return s.signal(arguments[0], arguments[1])
		}
	case "curl":
		if host, ok := checked(arguments); ok {
			return s.connect(host)
		}
	case gridd:
		if len(arguments) == 0 && s.state.Licensed {
			return s.noLibrary()
		}
	case "env":
		if len(arguments) == 2 && strings.Contains(arguments[0], "=") && arguments[1] == gridd && s.state.Licensed {
			return s.startWith(arguments[0])
		}
	}
	return s.notFound(command)
}

func (s *session) notFound(command []string) int {
	fmt.Fprintf(s.err, "%s: command not found in this lab\n", strings.Join(command, " "))
	return unknown
}

func (s *session) fail(format string, arguments ...any) int {
	fmt.Fprintf(s.err, format+"\n", arguments...)
	return 1
}

func isNew(path string) bool {
	return strings.HasSuffix(path, suffix) && slices.Contains(replaceable, strings.TrimSuffix(path, suffix))
}

func known(path string) bool {
	return isNew(path) || slices.Contains(replaceable, path)
}

// The arguments of curl before the proxy and the address: no output, and whether a name was resolved, a connection made, and TLS agreed.
var curlArguments = []string{"-sSkg", "-o", "/dev/null", "-m", "10", "-w", "%{time_namelookup} %{time_connect} %{time_appconnect}"}

// checked returns the host and the port to which curl connects.
func checked(arguments []string) (string, bool) {
	count := len(curlArguments)
	if len(arguments) != count+3 || !slices.Equal(arguments[:count], curlArguments) || arguments[count] != "--noproxy" && arguments[count] != "--proxy" {
		return "", false
	}
	host, found := strings.CutPrefix(arguments[count+2], "https://")
	return strings.TrimSuffix(host, "/"), found
}

// connect answers as curl (its manual page, "EXIT CODES"), and connects to nothing.
func (s *session) connect(address string) int {
	host, port := address[:max(strings.LastIndex(address, ":"), 0)], address[strings.LastIndex(address, ":")+1:]
	switch s.state.Unreachable {
	case "":
		fmt.Fprint(s.out, "0.002104 0.003512 0.012875")
		return 0
	case "dns":
		fmt.Fprint(s.out, "0.000000 0.000000 0.000000")
		fmt.Fprintf(s.err, "curl: (6) Could not resolve host: %s\n", host)
		return 6
	case "tls":
		fmt.Fprint(s.out, "0.002104 0.003512 0.000000")
		fmt.Fprintf(s.err, "curl: (35) OpenSSL SSL_connect: Connection reset by peer in connection to %s \n", address)
		return 35
	default:
		fmt.Fprint(s.out, "0.002104 0.000000 0.000000")
		fmt.Fprintf(s.err, "curl: (28) Failed to connect to %s port %s: Connection timed out\n", host, port)
		return 28
	}
}

// query prints the state; a daemon that the simulator does not know yet has no license.
func (s *session) query() int {
	status := driverpod.NotLicensed
	daemon, err := s.folder.Daemon()
	if err != nil {
		return s.fail("nvidia-smi: %v", err)
	}
	running := 0
	if daemon.Runs() {
		running = daemon.PID
	}
	if running == s.state.PID {
		status = s.state.Status
	}
	fmt.Fprint(s.out, strings.ReplaceAll(s.state.Query, driverpod.StatusMark, status))
	return 0
}

func (s *session) sums(paths []string) int {
	status := 0
	for _, path := range paths {
		content, err := s.folder.Read(path)
		if err != nil || content == nil {
			status = s.fail("sha256sum: %s: No such file or directory", path)
			continue
		}
		sum := sha256.Sum256(content)
		fmt.Fprintf(s.out, "%s  %s\n", hex.EncodeToString(sum[:]), path)
	}
	return status
}

// copy writes its input as it arrives: if the client is killed, a part of the file remains.
func (s *session) copy(path string) int {
	file, err := os.OpenFile(s.folder.File(path), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return s.fail("cp: cannot create regular file '%s': No such file or directory", path)
	}
	_, err = io.Copy(file, s.in)
	if err = errors.Join(err, file.Close()); err != nil {
		return s.fail("cp: error writing '%s'", path)
	}
	return 0
}

func (s *session) move(from, to string) int {
	err := os.Rename(s.folder.File(from), s.folder.File(to))
	if errors.Is(err, fs.ErrNotExist) {
		return s.fail("mv: cannot stat '%s': No such file or directory", from)
	}
	if err != nil {
		return s.fail("mv: cannot move '%s' to '%s'", from, to)
	}
	return 0
}

func (s *session) remove(paths []string) int {
	for _, path := range paths {
		if err := os.Remove(s.folder.File(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s.fail("rm: cannot remove '%s'", path)
		}
	}
	return 0
}

func (s *session) process() int {
	daemon, err := s.folder.Daemon()
	if err != nil || !daemon.Exists(s.now) && (daemon == nil || daemon.Other != daemon.PID) {
		return s.fail("cat: %s: No such file or directory", driverpod.PIDPath)
	}
	fmt.Fprintln(s.out, daemon.PID)
	return 0
}

// commOf returns the process ID in /proc/PID/comm, the file with the name of a process.
func commOf(paths []string) (int, bool) {
	if len(paths) != 1 {
		return 0, false
	}
	process, found := strings.CutPrefix(paths[0], "/proc/")
	process, ends := strings.CutSuffix(process, "/comm")
	pid, err := strconv.Atoi(process)
	return pid, found && ends && err == nil && pid > 0
}

func (s *session) comm(pid int) int {
	daemon, err := s.folder.Daemon()
	switch {
	case err == nil && daemon.Exists(s.now) && daemon.PID == pid:
		fmt.Fprintln(s.out, gridd)
	case err == nil && daemon != nil && daemon.Other == pid:
		fmt.Fprintln(s.out, "sleep")
	default:
		return s.fail("cat: /proc/%d/comm: No such file or directory", pid)
	}
	return 0
}

func (s *session) signal(name, process string) int {
	pid, err := strconv.Atoi(process)
	if err != nil {
		return s.fail("kill: %s: arguments must be process or job IDs", process)
	}
	daemon, err := s.folder.Daemon()
	exists := err == nil && daemon.Exists(s.now) && daemon.PID == pid
	other := err == nil && daemon != nil && daemon.Other == pid
	switch {
	case !exists && !other:
		return s.fail("kill: (%d) - No such process", pid)
	case !exists:
		err = s.folder.KillOther(daemon)
	case name == "-KILL":
		err = s.folder.KillDaemon(daemon, s.now)
	case daemon.Runs():
		err = s.folder.StopDaemon(daemon, s.now, s.state.StopTime)
	}
	if err != nil {
		return s.fail("kill: %v", err)
	}
	return s.announce()
}

// startWith starts nvidia-gridd with an environment variable, which must name a folder with its libraries.
func (s *session) startWith(variable string) int {
	name, value, _ := strings.Cut(variable, "=")
	found := slices.ContainsFunc(strings.Split(value, ":"), func(folder string) bool { return slices.Contains(libraries, folder) })
	if name != "LD_LIBRARY_PATH" || !found {
		return s.noLibrary()
	}
	return s.start()
}

// noLibrary fails as the dynamic linker does.
func (s *session) noLibrary() int {
	s.fail("%s: error while loading shared libraries: libFlxCore64.so: cannot open shared object file: No such file or directory", gridd)
	return unknown
}

// start starts nvidia-gridd, unless its last process has not ended.
func (s *session) start() int {
	daemon, err := s.folder.Daemon()
	if err != nil {
		return s.fail("nvidia-gridd: %v", err)
	}
	if daemon.Exists(s.now) {
		return s.fail("nvidia-gridd: already running (%d)", daemon.PID)
	}
	if err := s.folder.StartDaemon(); err != nil {
		return s.fail("nvidia-gridd: %v", err)
	}
	return s.announce()
}

func (s *session) announce() int {
	if err := s.folder.Announce(); err != nil {
		return s.fail("%v", err)
	}
	return 0
}
