// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Selection contains the options by which config-manager selects a config.
type Selection struct {
	Default   string
	Fallbacks []string
}

// Select returns the name of a node's config like config-manager, "" for the empty one; available is the mounted folder.
func (s Selection) Select(label string, available map[string]string) (string, error) {
	if len(available) == 0 {
		return "", errors.New("no configuration files available")
	}
	wanted := label
	if wanted == "" {
		wanted = s.Default
	}
	if wanted != "" {
		if _, there := available[wanted]; !there {
			// The real config-manager prints the label, which is empty if the default is missing.
			return "", fmt.Errorf("specified config %v does not exist", label)
		}
		return wanted, nil
	}
	for _, strategy := range s.Fallbacks {
		switch strategy {
		case "named":
			if _, there := available["default"]; there {
				return "default", nil
			}
		case "single":
			if len(available) == 1 {
				return slices.Collect(maps.Keys(available))[0], nil
			}
		case "empty":
			return "", nil
		default:
			return "", fmt.Errorf("unknown fallback strategy: %v", strategy)
		}
	}
	return "", errors.New("no config was set, no default was provided, and all fallbacks failed")
}
