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

// fitQuery are a geometry and what is wanted of it, each as {profile: count}.
type fitQuery struct {
	Geometry rules.Geometry   `json:"geometry"`
	Counts   []map[string]int `json:"counts"`
}

// fit answers the questions on its standard input, a line of JSON each: for every counts the devices in the order in
// which they are made, as "3g.20gb@4", or null where there is no room for them.
func fit(arguments []string) error {
	if len(arguments) > 0 {
		return fmt.Errorf("fit takes no arguments: %q", arguments)
	}
	asked, answered := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var next fitQuery
		if err := asked.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answers := make([][]rules.MIGDevice, len(next.Counts))
		for at, counts := range next.Counts {
			if placed, fits := next.Geometry.Fit(counts); fits {
				answers[at] = append([]rules.MIGDevice{}, placed...)
			}
		}
		if err := answered.Encode(answers); err != nil {
			return err
		}
	}
}
