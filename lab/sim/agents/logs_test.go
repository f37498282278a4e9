// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLogsAreInTheFormatOfTheRuntime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "main.log")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	if err := writeCRI(path, []string{"one", "two"}, at); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "2026-01-02T03:04:05.000006Z stdout F one\n2026-01-02T03:04:05.000006Z stdout F two\n" {
		t.Errorf("%q %v", text, err)
	}
}

func TestSweepLeavesTheLivingAndTheForeign(t *testing.T) {
	dir := t.TempDir()
	alive := &Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "1"}}
	for _, folder := range []string{"ns_p_1", "ns_p_0", "other"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ns_operator_main.log"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	logs := newPodLogs(dir, nil)
	logs.sweep([]any{alive})
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if strings.Join(left, " ") != "ns_operator_main.log ns_p_1 other" {
		t.Errorf("%v", left)
	}
	logs.remove(alive)
	if _, err := os.Stat(filepath.Join(dir, "ns_p_1")); !os.IsNotExist(err) {
		t.Error("the pod's folder was not deleted")
	}
}
