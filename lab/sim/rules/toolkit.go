// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"encoding/json"
	"fmt"
	"strings"
)

// ContainerdAnnotation describes the containerd of a node's Kubernetes distribution.
const ContainerdAnnotation = "lab.accel.gpu/containerd"

// NoRuntime is the event of a pod whose runtime class has a handler that containerd does not know.
const NoRuntime = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "nvidia" is configured`

// Containerd is where the containerd of a distribution is, and what it reads.
type Containerd struct {
	Socket string `json:"socket"`
	// Config is the file or folder that it reads; empty if the distribution finds the toolkit's runtimes itself.
	Config string `json:"config"`
	// Imports means that it also reads what its configuration imports.
	Imports bool `json:"imports"`
}

// ToolkitPaths are the paths on the node with which a container toolkit works. DropIn is empty before v1.18.
type ToolkitPaths struct {
	Socket, Config, DropIn string
}

// ParseContainerd parses the annotation; nil for a node without it, whose containerd suits every toolkit.
func ParseContainerd(annotation string) (*Containerd, error) {
	if annotation == "" {
		return nil, nil
	}
	var c Containerd
	if err := json.Unmarshal([]byte(annotation), &c); err != nil {
		return nil, fmt.Errorf("%s: %w", ContainerdAnnotation, err)
	}
	return &c, nil
}

// Failure returns why a toolkit exits on this node, or an empty string. The toolkit gives up after six attempts to signal
// containerd (nvidia-container-toolkit cmd/nvidia-ctk-installer/container/runtime/containerd/containerd_linux.go).
func (c *Containerd) Failure(p ToolkitPaths) string {
	if c == nil || c.Socket == p.Socket {
		return ""
	}
	return "unable to restart containerd: unable to dial: dial unix /runtime/sock-dir/containerd.sock: connect: no such file or directory"
}

// Configured returns whether containerd has the runtimes of a toolkit with these paths.
func (c *Containerd) Configured(p ToolkitPaths) bool {
	if c == nil {
		return true
	}
	if c.Failure(p) != "" {
		return false
	}
	if c.Config == "" {
		return true
	}
	if p.DropIn == "" || c.Imports {
		return c.reads(p.Config)
	}
	return c.reads(p.DropIn)
}

func (c *Containerd) reads(path string) bool {
	return path == c.Config || strings.HasPrefix(path, c.Config+"/")
}
