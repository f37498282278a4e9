// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import "testing"

func TestContainerd(t *testing.T) {
	standard := ToolkitPaths{"/run/containerd/containerd.sock", "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"}
	kubeadm := &Containerd{"/run/containerd/containerd.sock", "/etc/containerd", true}
	k3s := &Containerd{Socket: "/run/k3s/containerd/containerd.sock"}
	k0s := &Containerd{Socket: "/run/k0s/containerd.sock", Config: "/etc/k0s/containerd.d"}
	microk8s := &Containerd{"/snap/containerd.sock", "/snap/containerd-template.toml", true}
	for name, test := range map[string]struct {
		node       *Containerd
		paths      ToolkitPaths
		fails      bool
		configured bool
	}{
		"unknown":                     {nil, ToolkitPaths{}, false, true},
		"kubeadm":                     {kubeadm, standard, false, true},
		"another file":                {kubeadm, ToolkitPaths{standard.Socket, "/etc/other/config.toml", ""}, false, false},
		"k3s by default":              {k3s, standard, true, false},
		"k3s":                         {k3s, ToolkitPaths{k3s.Socket, standard.Config, standard.DropIn}, false, true},
		"k0s by its socket alone":     {k0s, ToolkitPaths{k0s.Socket, standard.Config, standard.DropIn}, false, false},
		"k0s with imports of imports": {k0s, ToolkitPaths{k0s.Socket, "/etc/k0s/containerd.d/nvidia.toml", standard.DropIn}, false, false},
		"k0s":                         {k0s, ToolkitPaths{k0s.Socket, "/tmp/dummy.toml", "/etc/k0s/containerd.d/nvidia.toml"}, false, true},
		"k0s before drop-in files":    {k0s, ToolkitPaths{k0s.Socket, "/etc/k0s/containerd.d/nvidia.toml", ""}, false, true},
		"microk8s":                    {microk8s, ToolkitPaths{microk8s.Socket, microk8s.Config, standard.DropIn}, false, true},
	} {
		if fails := test.node.Failure(test.paths) != ""; fails != test.fails {
			t.Errorf("%s: fails is %v", name, fails)
		}
		if configured := test.node.Configured(test.paths); configured != test.configured {
			t.Errorf("%s: configured is %v", name, configured)
		}
	}
	if c, err := ParseContainerd(`{"socket": "/s", "config": "/c", "imports": true}`); err != nil || *c != (Containerd{"/s", "/c", true}) {
		t.Errorf("parsed %v, %v", c, err)
	}
	if _, err := ParseContainerd("{"); err == nil {
		t.Error("invalid JSON is accepted")
	}
}
