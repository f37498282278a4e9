// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// helpers are the programs that the agents call.
var helpers = map[string]func(arguments []string) int{
	"nvidia-smi":              smi,
	"nvidia-cuda-mps-control": mpsControl,
}

// driverFiles writes the files of a loaded driver in /proc: its module, and the device minor of each possible MIG
// capability, existing or not (MIG user guide, "Device Nodes and Capabilities").
func driverFiles() error {
	if err := write("/proc/modules", []byte("nvidia 1 0 - Live 0x0000000000000000\n")); err != nil {
		return err
	}
	var minors strings.Builder
	fmt.Fprintf(&minors, "config 1\nmonitor 2\n")
	minor := 3
	for gpu := range 32 {
		for instance := range 15 {
			fmt.Fprintf(&minors, "gpu%d/gi%d/access %d\n", gpu, instance, minor)
			fmt.Fprintf(&minors, "gpu%d/gi%d/ci0/access %d\n", gpu, instance, minor+1)
			minor += 2
		}
	}
	return write("/proc/driver/nvidia-caps/mig-minors", []byte(minors.String()))
}

// smi is `nvidia-smi` with the options that agents use: `-r -i ID...` resets GPUs, and `-i ID -c MODE` has no effect here.
func smi(arguments []string) int {
	switch {
	case len(arguments) == 3 && arguments[0] == "-r":
		return reset()
	case len(arguments) == 4 && arguments[2] == "-c":
		return 0
	}
	fmt.Println("the lab's nvidia-smi does not support", arguments)
	return 2
}

// reset resets the GPUs: pending MIG modes take effect, and MIG devices are deleted. It fails if a GPU is in use.
func reset() int {
	text, err := os.ReadFile(stateFile)
	if err != nil {
		fmt.Println(err)
		return 255
	}
	var after strings.Builder
	for line := range strings.Lines(string(text)) {
		var gpu, mode, pending, busy, id, profile, start, computes int
		if n, _ := fmt.Sscanf(line, "mode %d %d %d %d", &gpu, &mode, &pending, &busy); n == 4 {
			fmt.Fprintf(&after, "mode %d %d %d 0\n", gpu, pending, pending)
		} else {
			_, _ = fmt.Sscanf(line, "instance %d %d %d %d %d %d", &gpu, &id, &profile, &start, &computes, &busy)
		}
		if busy == 1 {
			fmt.Println("In use by another client")
			return 255
		}
	}
	if err := write(stateFile, []byte(after.String())); err != nil {
		fmt.Println(err)
		return 255
	}
	return 0
}

// mpsControl starts (`-d`) or queries the MPS control daemon of a node.
func mpsControl(arguments []string) int {
	if len(arguments) > 0 {
		if err := write(mpsRunning, nil); err != nil {
			return 1
		}
		return 0
	}
	if _, err := os.Stat(mpsRunning); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println("100.0")
	return 0
}
