// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"errors"
	"fmt"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
	"sigs.k8s.io/yaml"
)

// Environment contains the environment variables that the operator sets for an agent; they override the config file.
type Environment struct {
	MIGStrategy string
	MPSRoot     string
}

// Config is the effective config of an agent.
type Config struct {
	Sharing     spec.Sharing
	MIGStrategy string
	Imex        spec.Imex
	// ByIndex means that containers get the indices of their devices instead of UUIDs.
	ByIndex bool
}

// PluginConfig parses a config like nvidia-device-plugin; the error is its last log line.
func PluginConfig(text string, env Environment) (*Config, error) {
	flags, c, err := load(text, env)
	if err != nil {
		return nil, fmt.Errorf("error starting plugins: %w", err)
	}
	if err := pluginFlags(flags, c); err != nil {
		return nil, fmt.Errorf("error starting plugins: unable to validate flags: %w", err)
	}
	return c, nil
}

// GFDConfig parses a config like gpu-feature-discovery: it validates the file, but only its own flags.
func GFDConfig(text string, env Environment) (*Config, error) {
	flags, c, err := load(text, env)
	if err != nil {
		return nil, err
	}
	if s := value(flags.DeviceDiscoveryStrategy, "auto"); s != "auto" && s != "nvml" && s != "tegra" && s != "vfio" {
		return nil, fmt.Errorf("unable to load config: unable to validate flags: invalid --device-discovery-strategy option %v", s)
	}
	return c, nil
}

// load parses the text with NVIDIA's own parser.
func load(text string, env Environment) (*spec.Flags, *Config, error) {
	parsed, err := parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to load config: unable to finalize config: unable to parse config file: error parsing config file: %w", err)
	}
	spec.DisableResourceNamingInConfig(parsed)
	if env.MIGStrategy != "" {
		parsed.Flags.MigStrategy = &env.MIGStrategy
	}
	if env.MPSRoot != "" {
		parsed.Flags.MpsRoot = &env.MPSRoot
	}
	config := &Config{Sharing: parsed.Sharing, MIGStrategy: value(parsed.Flags.MigStrategy, spec.MigStrategyNone), Imex: parsed.Imex}
	if plugin := parsed.Flags.Plugin; plugin != nil {
		config.ByIndex = value(plugin.DeviceIDStrategy, spec.DeviceIDStrategyUUID) == spec.DeviceIDStrategyIndex
	}
	return &parsed.Flags, config, nil
}

func parse(text string) (*spec.Config, error) {
	var c spec.Config
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("unmarshal error: %w", err)
	}
	if c.Version != "" && c.Version != spec.Version {
		return nil, fmt.Errorf("unknown version: %v", c.Version)
	}
	return &c, nil
}

// pluginFlags validates the flags in the plugin's order (validateFlags in cmd/nvidia-device-plugin/main.go).
func pluginFlags(flags *spec.Flags, c *Config) error {
	if plugin := flags.Plugin; plugin != nil {
		if plugin.DeviceListStrategy != nil {
			if _, err := spec.NewDeviceListStrategies(*plugin.DeviceListStrategy); err != nil {
				return fmt.Errorf("invalid --device-list-strategy option: %w", err)
			}
		}
		if s := value(plugin.DeviceIDStrategy, spec.DeviceIDStrategyUUID); s != spec.DeviceIDStrategyUUID && s != spec.DeviceIDStrategyIndex {
			return fmt.Errorf("invalid --device-id-strategy option: %v", s)
		}
	}
	if c.Sharing.SharingStrategy() == spec.SharingStrategyMPS {
		if c.MIGStrategy == spec.MigStrategyMixed {
			return errors.New("using --mig-strategy=mixed is not supported with MPS")
		}
		if value(flags.MpsRoot, "") == "" {
			return errors.New("using MPS requires --mps-root to be specified")
		}
	}
	if s := value(flags.DeviceDiscoveryStrategy, "auto"); s != "auto" && s != "nvml" && s != "tegra" {
		return fmt.Errorf("invalid --device-discovery-strategy option %v", s)
	}
	switch c.MIGStrategy {
	case spec.MigStrategyNone, spec.MigStrategySingle, spec.MigStrategyMixed:
	default:
		return fmt.Errorf("unknown MIG strategy: %v", c.MIGStrategy)
	}
	if err := spec.AssertChannelIDsValid(c.Imex.ChannelIDs); err != nil {
		return fmt.Errorf("invalid IMEX channel IDs: %w", err)
	}
	return nil
}

// MPS returns whether the config uses MPS, for which the plugin waits for an MPS control daemon.
func (c *Config) MPS() bool {
	return c.Sharing.SharingStrategy() == spec.SharingStrategyMPS
}

// OnePerRequest returns whether a request for two replicas is rejected: always with MPS, otherwise if the config says so.
func (c *Config) OnePerRequest() bool {
	return c.MPS() || c.Sharing.TimeSlicing.FailRequestsGreaterThanOne && c.Sharing.SharingStrategy() == spec.SharingStrategyTimeSlicing
}

func value(pointer *string, fallback string) string {
	if pointer == nil {
		return fallback
	}
	return *pointer
}
