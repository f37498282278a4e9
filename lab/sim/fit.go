// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"lab.invalid/sim/rules"
)

// fitQuery is a geometry and the sets of MIG devices to place, each as {profile: count}.
type fitQuery struct {
	Geometry rules.Geometry   `json:"geometry"`
	Counts   []map[string]int `json:"counts"`
}

// fit answers the queries on standard input, one JSON document per line. For each entry of counts it prints the devices
// in the order of their creation, as "3g.20gb@4", or null if they do not fit.
func fit(arguments []string) error {
	if len(arguments) > 0 {
		return fmt.Errorf("fit takes no arguments: %q", arguments)
	}
	queries, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var next fitQuery
		if err := queries.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		devices := make([][]rules.MIGDevice, len(next.Counts))
		for at, counts := range next.Counts {
			if placed, fits := next.Geometry.Fit(counts); fits {
				devices[at] = append([]rules.MIGDevice{}, placed...)
			}
		}
		if err := results.Encode(devices); err != nil {
			return err
		}
	}
}
