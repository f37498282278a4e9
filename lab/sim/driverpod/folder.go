// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package driverpod is the state of a driver pod's container on disk, which the simulator shares with the program that answers
// `kubectl exec`.
package driverpod

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The files of the container that exec commands may read or replace, and the one with the process id of nvidia-gridd.
const (
	ConfigPath = "/etc/nvidia/gridd.conf"
	TokenPath  = "/etc/nvidia/ClientConfigToken/client_configuration_token.tok"
	PIDPath    = "/var/run/nvidia-gridd/nvidia-gridd.pid"
)

// EnvFolder is the environment variable of an exec command with the folder of its container.
const EnvFolder = "LAB_CONTAINER"

// StatusMark is replaced by the license status in State.Query.
const StatusMark = "{license status}"

// NotLicensed is the status of a vGPU whose daemon has no license yet.
const NotLicensed = "Unlicensed (Unrestricted)"

// EventsFolder is the folder beside the containers in which a file with a container's name announces a change.
const EventsFolder = ".events"

const firstPID = 412

// Folder is the folder of one container.
type Folder string

// State is what the simulator writes and the exec commands show.
type State struct {
	// Started identifies the start of the container.
	Started int64 `json:"started"`
	// Skew is added to the machine's clock.
	Skew time.Duration `json:"skew"`
	// StopTime is how long nvidia-gridd needs to end.
	StopTime time.Duration `json:"stop_time"`
	// Licensed means that the container has nvidia-gridd.
	Licensed bool `json:"licensed"`
	// Unreachable is the layer (dns, tcp or tls) in which connections to license servers fail; empty if they succeed.
	Unreachable string `json:"unreachable"`
	// Query is the output of `nvidia-smi -q`, and Status the license status of the daemon with the process id PID.
	Query  string `json:"query"`
	Status string `json:"status"`
	PID    int    `json:"pid"`
}

// Daemon is the last process of nvidia-gridd with the files that it has read; a nil file did not exist.
type Daemon struct {
	PID    int    `json:"pid"`
	Config []byte `json:"config"`
	Token  []byte `json:"token"`
	// Stopped is when it received SIGTERM, and End when it ends or has ended.
	Stopped time.Time `json:"stopped"`
	End     time.Time `json:"end"`
	// Other is another process of the node, which got the process id of a daemon that was killed; 0 if there is none.
	Other int `json:"other"`
}

// Exists returns whether the process exists at a time.
func (d *Daemon) Exists(now time.Time) bool {
	return d != nil && (d.End.IsZero() || now.Before(d.End))
}

// Runs returns whether the process exists and has not received SIGTERM.
func (d *Daemon) Runs() bool {
	return d != nil && d.Stopped.IsZero()
}

// File returns the path on this machine of a file of the container.
func (f Folder) File(path string) string {
	return filepath.Join(string(f), "root", path)
}

// Create creates the folders of the container's files; the driver's script creates that of the token even without a token.
func (f Folder) Create() error {
	return os.MkdirAll(filepath.Dir(f.File(TokenPath)), 0o700)
}

// Read returns a file of the container, or nil if it does not exist.
func (f Folder) Read(path string) ([]byte, error) {
	content, err := os.ReadFile(f.File(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && content == nil {
		content = []byte{}
	}
	return content, err
}

// State returns what the simulator has written.
func (f Folder) State() (State, error) {
	var s State
	return s, f.load("state.json", &s)
}

// SetState writes the state if it has changed.
func (f Folder) SetState(s State) error {
	if old, err := f.State(); err == nil && old == s {
		return nil
	}
	return f.store("state.json", s)
}

// Daemon returns the last process of nvidia-gridd, or nil.
func (f Folder) Daemon() (*Daemon, error) {
	var d Daemon
	err := f.load("daemon.json", &d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// StartDaemon starts nvidia-gridd, which reads its files only now.
func (f Folder) StartDaemon() error {
	before, err := f.Daemon()
	if err != nil {
		return err
	}
	next := Daemon{PID: firstPID}
	if before != nil {
		next.PID, next.Other = before.PID+1, before.Other
	}
	if next.Config, err = f.Read(ConfigPath); err != nil {
		return err
	}
	if next.Token, err = f.Read(TokenPath); err != nil {
		return err
	}
	return f.store("daemon.json", next)
}

// StopDaemon sends SIGTERM to nvidia-gridd, which ends after a while.
func (f Folder) StopDaemon(d *Daemon, now time.Time, after time.Duration) error {
	stopped := *d
	stopped.Stopped, stopped.End = now, now.Add(after)
	return f.store("daemon.json", stopped)
}

// KillDaemon ends nvidia-gridd immediately. Its PID file remains, and the node gives its process id to another process.
func (f Folder) KillDaemon(d *Daemon, now time.Time) error {
	killed := *d
	killed.Stopped, killed.End, killed.Other = now, now, d.PID
	return f.store("daemon.json", killed)
}

// KillOther ends the process that has the process id of a former daemon.
func (f Folder) KillOther(d *Daemon) error {
	alone := *d
	alone.Other = 0
	return f.store("daemon.json", alone)
}

// Announce notifies the simulator of a change of the container.
func (f Folder) Announce() error {
	return os.WriteFile(filepath.Join(filepath.Dir(string(f)), EventsFolder, filepath.Base(string(f))), nil, 0o600)
}

func (f Folder) load(name string, into any) error {
	content, err := os.ReadFile(filepath.Join(string(f), name))
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func (f Folder) store(name string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(string(f), "."+name+"-*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), filepath.Join(string(f), name))
}
